//! Peers on other hosts: TCP.
//!
//! A host that is cut off says nothing, so each side says something now and then ([`Builder::silence`](crate::Builder::silence)). A peer that
//! is not heard for that long is lost, unless its kernel has acknowledged meanwhile what was sent to it: then its process is there and gets no
//! processor, or is stopped, and is lost after ten times as long.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;

use crate::connect::PATIENCE;
use crate::layer::Listener;
use crate::socket::Socket;
use crate::tls::Keys;
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
    /// Those who show a certificate that this authority has signed; what is said is encrypted. A certificate does not say which instance one is: who has
    /// one is believed to be whichever it says.
    Mutual {
        /// The authority's certificates, in PEM.
        ca: PathBuf,
        /// The certificate of this instance, and those between it and the authority's. Has to hold for the name or address that others join it by.
        certificate: PathBuf,
        /// Its private key.
        key: PathBuf,
    },
}

impl Security {
    /// Whether these addresses may be used.
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
    /// Lets instances of other hosts join at this address; which it is, since port 0 is any that is free.
    ///
    /// # Errors
    /// [`Insecure`](MessageError::Insecure), [`Certificate`](MessageError::Certificate); [`System`](MessageError::System): nobody can listen there;
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
    /// [`Insecure`](MessageError::Insecure), [`Certificate`](MessageError::Certificate); [`System`](MessageError::System): nobody listens there;
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
            let stream = TcpStream::connect_timeout(&found, PATIENCE).map_err(what())?;
            let socket = Socket::new(stream);
            match &keys {
                Some(keys) => keys.connect(socket, host).map_err(what()),
                None => Ok(Wire::plain(socket)),
            }
        };
        self.join_by(address.to_owned(), Transport::Tcp, dial)
    }
}
