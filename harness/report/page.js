'use strict';
// The page is complete without this script. It sorts, filters, and shows figures under the pointer.
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const tables = all('table.matrix');
const tip = document.getElementById('tip');

document.getElementById('theme').addEventListener('change', (event) => {
  document.documentElement.dataset.theme = event.target.value;
});

// Show one table at a time.
const metrics = all('input[name=metric]');
const chooseMetric = () => {
  const chosen = metrics.find((input) => input.checked)?.value;
  all('.metric').forEach((part) => { part.hidden = part.dataset.metric !== chosen; });
};
metrics.forEach((input) => input.addEventListener('change', chooseMetric));
chooseMetric();

// Sort: first the best first, then the worst first, then the original order.
for (const table of tables) {
  const body = table.tBodies[0];
  const original = [...body.rows];
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => heading.querySelector('button').addEventListener('click', () => {
    const next = { none: 'descending', descending: 'ascending', ascending: 'none' }[heading.getAttribute('aria-sort')];
    headings.forEach((other) => other.setAttribute('aria-sort', 'none'));
    heading.setAttribute('aria-sort', next);
    const rows = [...original];
    if (next !== 'none') {
      const sign = next === 'ascending' ? 1 : -1;
      // A cell whose text is its value has no other.
      const value = ({ cells: { [column]: cell } }) => cell.dataset.value
        ?? (cell.classList.contains('none') ? '' : String(parseFloat(cell.textContent)));
      rows.sort((a, b) => {
        if (column === 0) return sign * a.cells[0].textContent.localeCompare(b.cells[0].textContent);
        // Cells without a value stay at the end.
        if (!value(a) || !value(b)) return !value(a) - !value(b);
        return sign * (value(a) - value(b));
      });
    }
    body.append(...rows);
  }));
}

// Filter rows and their pictures by words, and columns by their boxes.
const search = document.getElementById('search');
const boxes = all('input[name=column]');
const said = document.getElementById('said');
const filter = () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (name) => words.every((word) => name.toLowerCase().includes(word));
  const shown = boxes.map((box) => box.checked);
  for (const table of tables) {
    for (const row of table.rows) {
      [...row.cells].forEach((cell, index) => { cell.hidden = index > 0 && !shown[index - 1]; });
      if (row.parentElement === table.tBodies[0]) row.hidden = !fits(row.cells[0].textContent);
    }
  }
  all('figure[data-row]').forEach((figure) => { figure.hidden = !fits(figure.dataset.row); });
  const rows = [...tables[0].tBodies[0].rows];
  said.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows, `
    + `${shown.filter(Boolean).length} of ${shown.length} columns shown`;
};
search?.addEventListener('input', filter);
boxes.forEach((box) => box.addEventListener('change', filter));

// Arrow keys move between the cells of a matrix. One of them is in the tab order.
for (const table of tables) {
  const cells = all('td', table);
  cells.forEach((cell, index) => { cell.tabIndex = index ? -1 : 0; });
  table.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    const cell = event.target.closest('td');
    if (!step || !cell) return;
    const rows = [...table.tBodies[0].rows].filter((row) => !row.hidden);
    const columns = [...cell.parentElement.cells].filter((other) => !other.hidden && other.matches('td'));
    const row = rows[rows.indexOf(cell.parentElement) + step[0]];
    const column = columns[columns.indexOf(cell) + step[1]];
    if (!row || !column) return;
    const next = row.cells[column.cellIndex];
    cell.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    event.preventDefault();
  });
}

// Tooltips, shown at once and in the page's own colours; also on focus.
const told = (element) => {
  const marked = element.closest('td, svg *');
  if (!marked) return '';
  if (marked.hasAttribute('title')) {
    marked.dataset.tip = marked.title;
    marked.setAttribute('aria-description', marked.title);
    marked.removeAttribute('title');
  }
  for (const element of [marked, marked.closest('g:has(> title)')]) {
    const title = element?.querySelector(':scope > title');
    if (!title) continue;
    element.dataset.tip = title.textContent;
    title.remove();
  }
  // A group's tip is the name of what all its marks belong to.
  return [marked.closest('g[data-tip]'), marked].map((each) => each?.dataset.tip).filter(Boolean).join(', ');
};
const show = (text, x, y) => {
  tip.hidden = !text;
  tip.textContent = text;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - box.width - 4))}px`;
  tip.style.top = `${y + 16 + box.height > innerHeight ? Math.max(4, y - box.height - 12) : y + 16}px`;
};
let again = () => {};
const showBelow = (element) => {
  const place = element.getBoundingClientRect();
  show(element.matches('td, svg *') ? told(element) : '', place.left, place.bottom - 12);
};

// Arrow keys move from mark to mark of a picture.
for (const picture of all('figure svg:has(g title)')) {
  let marks, at = -1;
  picture.tabIndex = 0;
  picture.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step) return;
    marks ??= all('rect, circle, path', picture).filter((mark) => told(mark) && mark.dataset.tip);
    marks[at]?.classList.remove('at');
    at = Math.max(0, Math.min(marks.length - 1, at + step));
    marks[at].classList.add('at');
    picture.setAttribute('aria-description', told(marks[at]));
    showBelow(marks[at]);
    again = () => showBelow(marks[at]);
    event.preventDefault();
  });
  picture.addEventListener('blur', () => { marks?.[at]?.classList.remove('at'); at = -1; });
}
document.addEventListener('pointerover', (event) => {
  const { clientX: x, clientY: y } = event;
  show(told(event.target), x, y);
  again = () => show(told(document.elementFromPoint(x, y) ?? document.body), x, y);
});
document.addEventListener('focusin', (event) => {
  showBelow(event.target);
  again = () => showBelow(event.target);
});
document.addEventListener('keydown', (event) => { if (event.key === 'Escape') tip.hidden = true; });
// What is pointed at, or has the focus, moves along: the step to a cell out of sight scrolls there.
document.addEventListener('scroll', () => { if (!tip.hidden) again(); }, { capture: true, passive: true });
