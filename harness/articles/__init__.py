"""What published articles asked and measured: the experiments again, the answers, and the page of both."""
