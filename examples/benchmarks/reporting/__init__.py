"""Tables and plots of the committed results."""
