"""What every page of Antiphon is made of: its look, its fonts, the JavaScript that all share, and how the files are served."""
