//! The function libraries, one file for each.
