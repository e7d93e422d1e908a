//! Peers on other hosts: TCP.
//!
//! A host that is cut off sends nothing, so each side sends heartbeats
//! ([`Builder::silence`](crate::Builder::silence)). A peer that has been silent for that long is
//! lost, unless its kernel has acknowledged data in the meantime. In that case its process exists
//! but gets no processor or is stopped, and the peer is lost after ten times the limit.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;

use crate::connect::HANDSHAKE_TIMEOUT;
use crate::layer::Listener;
use crate::socket::Socket;
use crate::tls::Keys;
use crate::wire::Wire;
use crate::{Layer, MessageError, Transport};

/// The trust between instances of different hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Security {
    /// None: any host may join, and any host on the path can read and change the data.
    None {
        /// Whether addresses other than this host's own may be used.
        anywhere: bool,
    },
    /// Peers must show a certificate that this authority has signed; the data is encrypted. A
    /// certificate does not identify an instance: its holder may claim any instance number.
    Mutual {
        /// The file of the authority's certificates, in PEM.
        ca: PathBuf,
        /// The file of this instance's certificate, followed by the intermediate ones. It has to be
        /// valid for the name or address by which others join.
        certificate: PathBuf,
        /// The file of its private key.
        key: PathBuf,
    },
}

impl Security {
    /// Checks whether these addresses may be used.
    fn permits(&self, address: IpAddr) -> Result<(), MessageError> {
        match self {
            Self::None { anywhere: false } if !address.to_canonical().is_loopback() => {
                Err(MessageError::Insecure(address))
            }
            Self::None { .. } | Self::Mutual { .. } => Ok(()),
        }
    }

    fn keys(&self) -> Result<Option<Keys>, MessageError> {
        match self {
            Self::None { .. } => Ok(None),
            Self::Mutual { ca, certificate, key } => Keys::load(ca, certificate, key).map(Some),
        }
    }
}

impl Layer {
    /// Lets instances of other hosts join at this address. Returns the actual address, since port 0
    /// selects a free one.
    ///
    /// # Errors
    /// [`Insecure`](MessageError::Insecure), [`Certificate`](MessageError::Certificate);
    /// [`System`](MessageError::System): listening there is impossible;
    /// [`Closed`](MessageError::Closed).
    pub fn listen(
        self: &Arc<Self>,
        address: SocketAddr,
        security: &Security,
    ) -> Result<SocketAddr, MessageError> {
        let what = || MessageError::system(format!("listen at {address}"));
        security.permits(address.ip())?;
        let keys = security.keys()?;
        let listener = TcpListener::bind(address).map_err(what())?;
        let bound = listener.local_addr().map_err(what())?;
        let socket = Socket::new(listener.try_clone().map_err(what())?);
        self.keep(Listener { socket, path: None })?;
        self.accept(Transport::Tcp, move || {
            let (stream, from) = listener.accept()?;
            let socket = Socket::new(stream);
            let wire = match &keys {
                Some(keys) => keys.accept(socket)?,
                None => Wire::plain(socket),
            };
            Ok((wire, from.to_string()))
        })?;
        Ok(bound)
    }

    /// Joins an instance that listens at this address, a name or a number with a port.
    ///
    /// # Errors
    /// Returns [`Insecure`](MessageError::Insecure), [`Certificate`](MessageError::Certificate),
    /// [`System`](MessageError::System) if no instance listens there, or
    /// [`Refused`](MessageError::Refused).
    pub fn join(self: &Arc<Self>, address: &str, security: &Security) -> Result<(), MessageError> {
        let what = || MessageError::system(format!("join {address}"));
        let found = address
            .to_socket_addrs()
            .and_then(|mut all| all.next().ok_or(io::ErrorKind::NotFound.into()))
            .map_err(what())?;
        security.permits(found.ip())?;
        let keys = security.keys()?;
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let dial = || {
            let stream = TcpStream::connect_timeout(&found, HANDSHAKE_TIMEOUT).map_err(what())?;
            let socket = Socket::new(stream);
            match &keys {
                Some(keys) => keys.connect(socket, host).map_err(what()),
                None => Ok(Wire::plain(socket)),
            }
        };
        self.join_by(address.to_owned(), Transport::Tcp, dial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_host_are_permitted_in_any_form() {
        let permits = |address: &str| {
            let security = Security::None { anywhere: false };
            security.permits(address.parse().expect("an address")).is_ok()
        };
        assert!(["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"].into_iter().all(permits));
        assert!(!["192.0.2.1", "::ffff:192.0.2.1", "::", "0.0.0.0"].into_iter().any(permits));
    }
}
