//! What took long is kept on disk, by the content of the file.
