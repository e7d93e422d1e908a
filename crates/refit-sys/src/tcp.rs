//! The kernel's view of the peer of a TCP connection: tcp(7), `TCP_INFO`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// The acknowledgements of the peer's kernel, which do not depend on the peer's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// The number of segments that it has not acknowledged.
    pub outstanding: u32,
    /// The time since its last acknowledgement.
    pub since: Duration,
}

/// Returns what the peer of a connection has acknowledged.
///
/// # Errors
/// `EOPNOTSUPP`, `ENOPROTOOPT`: the socket is not a TCP connection.
pub fn acknowledged(socket: BorrowedFd<'_>) -> io::Result<Acknowledged> {
    // SAFETY: all zeros are a valid value of this plain structure of integers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the pointer is valid for the length that is passed.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    let since = Duration::from_millis(info.tcpi_last_ack_recv.into());
    Ok(Acknowledged { outstanding: info.tcpi_unacked, since })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_peer_that_reads_nothing_acknowledges_all_the_same() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut one = TcpStream::connect(listener.local_addr().expect("bound")).expect("joined");
        let _other = listener.accept().expect("a connection");
        one.write_all(b"are you there?").expect("sent");
        while acknowledged(one.as_fd()).expect("a connection").outstanding > 0 {
            std::thread::yield_now();
        }
        let (pair, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        acknowledged(pair.as_fd()).expect_err("no TCP");
    }
}
