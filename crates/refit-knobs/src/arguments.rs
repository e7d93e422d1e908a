//! Library functions whose number arguments may be changed, and in which direction.

/// The directions in which a number may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Upwards and downwards.
    Any,
    /// Downwards: the function may always do less than it was asked for.
    Less,
    /// Upwards: the function provides more than is used.
    More,
}

/// Names, numbers of arguments from 1 on, and directions: by the manual pages of section 2 and 3.
const KNOWN: [(&str, u8, Direction); 27] = [
    ("calloc", 1, Direction::More),
    ("epoll_wait", 3, Direction::Less),
    ("epoll_wait", 4, Direction::Any),
    ("listen", 2, Direction::Any),
    ("malloc", 1, Direction::More),
    ("poll", 3, Direction::Any),
    ("pread", 3, Direction::Less),
    ("pread64", 3, Direction::Less),
    ("preadv", 3, Direction::Less),
    ("pwrite", 3, Direction::Less),
    ("pwrite64", 3, Direction::Less),
    ("read", 3, Direction::Less),
    ("readahead", 3, Direction::Any),
    ("readv", 3, Direction::Less),
    ("realloc", 2, Direction::More),
    ("recv", 3, Direction::Less),
    ("recvfrom", 3, Direction::Less),
    ("recvmmsg", 3, Direction::Less),
    ("send", 3, Direction::Less),
    ("sendfile", 4, Direction::Less),
    ("sendfile64", 4, Direction::Less),
    ("sendto", 3, Direction::Less),
    ("sleep", 1, Direction::Any),
    ("splice", 5, Direction::Less),
    ("usleep", 1, Direction::Any),
    ("write", 3, Direction::Less),
    ("writev", 3, Direction::Less),
];

/// Returns in which direction an argument of a function may be changed, if that is known.
pub fn direction(function: &str, argument: u8) -> Option<Direction> {
    let name = function.split('@').next().unwrap_or(function);
    let name = name.strip_prefix("__").unwrap_or(name);
    let known = KNOWN.iter().find(|(one, number, _)| *one == name && *number == argument);
    known.map(|(_, _, direction)| *direction)
}

#[cfg(test)]
#[test]
fn functions_are_known_by_name_and_argument() {
    assert_eq!(direction("read@plt", 3), Some(Direction::Less));
    assert_eq!(direction("__poll", 3), Some(Direction::Any));
    assert_eq!(direction("malloc", 1), Some(Direction::More));
    assert_eq!(direction("read", 1), None);
    assert_eq!(direction("reads", 3), None);
    assert!(KNOWN.is_sorted_by_key(|(name, number, _)| (*name, *number)));
}
