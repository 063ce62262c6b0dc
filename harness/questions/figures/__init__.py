"""What limits a figure that somebody else measured?"""
