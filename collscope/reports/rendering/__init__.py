"""What all reports share: tables, words on classes, and the forms that they are written in."""
