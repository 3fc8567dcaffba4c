"""Pages in HTML: markup that escapes what it is given, the frame around every page, and problems as pages."""
