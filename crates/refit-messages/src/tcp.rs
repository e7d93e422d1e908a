//! Peers on other hosts: TCP.
//!
//! A host that is cut off says nothing, so each side says something now and then ([`Builder::silence`](crate::Builder::silence)); what it
//! does not hear for that long is lost. So is a peer whose process is stopped.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;

use crate::connect::PATIENCE;
use crate::layer::Listener;
use crate::socket::Socket;
use crate::wire::Wire;
use crate::{Layer, MessageError, Transport};

/// Whom instances of other hosts believe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Security {
    /// Everybody, and everybody on the way can read and change what is said.
    None {
        /// By other addresses than this host's own, too. False is refused for those.
        anywhere: bool,
    },
}

impl Security {
    /// Whether these addresses may be used.
    fn permits(&self, address: IpAddr) -> Result<(), MessageError> {
        match self {
            Self::None { anywhere: false } if !address.to_canonical().is_loopback() => {
                Err(MessageError::Insecure(address))
            }
            Self::None { .. } => Ok(()),
        }
    }
}

impl Layer {
    /// Lets instances of other hosts join at this address; which it is, since port 0 is any that is free.
    ///
    /// # Errors
    /// [`Insecure`](MessageError::Insecure); [`System`](MessageError::System): nobody can listen there;
    /// [`Closed`](MessageError::Closed).
    pub fn listen(
        self: &Arc<Self>,
        address: SocketAddr,
        security: &Security,
    ) -> Result<SocketAddr, MessageError> {
        let what = || MessageError::system(format!("listen at {address}"));
        security.permits(address.ip())?;
        let listener = TcpListener::bind(address).map_err(what())?;
        let bound = listener.local_addr().map_err(what())?;
        let socket = Socket::new(listener.try_clone().map_err(what())?);
        self.keep(Listener { socket, path: None })?;
        self.accept(Transport::Tcp, move || {
            let (stream, from) = listener.accept()?;
            Ok((Wire::plain(Socket::new(stream)), from.to_string()))
        })?;
        Ok(bound)
    }

    /// Joins an instance that listens at this address, a name or a number with a port.
    ///
    /// # Errors
    /// [`Insecure`](MessageError::Insecure); [`System`](MessageError::System): nobody listens there;
    /// [`Refused`](MessageError::Refused).
    pub fn join(self: &Arc<Self>, address: &str, security: &Security) -> Result<(), MessageError> {
        let what = || MessageError::system(format!("join {address}"));
        let found = address
            .to_socket_addrs()
            .and_then(|mut all| all.next().ok_or(io::ErrorKind::NotFound.into()))
            .map_err(what())?;
        security.permits(found.ip())?;
        let dial = || {
            let stream = TcpStream::connect_timeout(&found, PATIENCE).map_err(what())?;
            Ok(Wire::plain(Socket::new(stream)))
        };
        self.join_by(address.to_owned(), Transport::Tcp, dial)
    }
}
