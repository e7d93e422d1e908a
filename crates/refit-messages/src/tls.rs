//! Connections that no third party can read or change, between instances that both show a
//! certificate: TLS 1.3.
//!
//! # Two threads and one connection
//!
//! One thread reads and another writes, and both need the state of the connection: it is locked
//! while records are encrypted or decrypted, never while a thread waits for the socket. Until the
//! handshake is complete, which is before the first message, one thread does both. From then on
//! only the writer writes to the socket, so that records leave in the order in which they were
//! made.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
};

use crate::MessageError;
use crate::sink::Sink;
use crate::socket::{Socket, Stream};
use crate::wire::Wire;

/// The maximum number of plain bytes in a record.
const RECORD: usize = 16 << 10;

/// The certificate of an instance, and the authority that it trusts.
#[derive(Clone)]
pub(crate) struct Keys {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl Keys {
    /// Reads them from files in PEM.
    pub(crate) fn load(ca: &Path, certificate: &Path, key: &Path) -> Result<Self, MessageError> {
        let unreadable = |path: &Path, why: &dyn std::fmt::Display| MessageError::Certificate {
            path: path.to_owned(),
            why: why.to_string(),
        };
        let chain = |path: &Path| -> Result<Vec<CertificateDer<'static>>, MessageError> {
            let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
            all.map_err(|why| unreadable(path, &why))
        };
        let mut roots = RootCertStore::empty();
        for root in chain(ca)? {
            roots.add(root).map_err(|why| unreadable(ca, &why))?;
        }
        let own = chain(certificate)?;
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|why| unreadable(key, &why))?;
        let (roots, provider) =
            (Arc::new(roots), Arc::new(rustls::crypto::ring::default_provider()));
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build()
                .map_err(|why| unreadable(ca, &why))?;
        let versions = &[&rustls::version::TLS13];
        let unfit = |why: rustls::Error| unreadable(certificate, &why);
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(unfit)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(own.clone(), secret.clone_key())
            .map_err(unfit)?;
        // No client resumes, and a reader would have to write the tickets.
        server.send_tls13_tickets = 0;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(unfit)?
            .with_root_certificates(roots)
            .with_client_auth_cert(own, secret)
            .map_err(unfit)?;
        Ok(Self { server: Arc::new(server), client: Arc::new(client) })
    }

    /// Returns the side that accepts a connection.
    pub(crate) fn accept(&self, socket: Arc<Socket>) -> io::Result<Wire> {
        let connection = ServerConnection::new(Arc::clone(&self.server));
        Ok(wire(socket, connection.map_err(io::Error::other)?.into()))
    }

    /// Returns the side that connects to a host of this name, for which the other's certificate has
    /// to be valid.
    pub(crate) fn connect(&self, socket: Arc<Socket>, host: &str) -> io::Result<Wire> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connection = ClientConnection::new(Arc::clone(&self.client), name);
        Ok(wire(socket, connection.map_err(io::Error::other)?.into()))
    }
}

fn wire(socket: Arc<Socket>, connection: Connection) -> Wire {
    let connection = Arc::new(Mutex::new(connection));
    let stream = Stream(Arc::clone(&socket));
    let from = Reader {
        connection: Arc::clone(&connection),
        stream: stream.clone(),
        established: false,
        records: vec![0; RECORD],
        there: 0..0,
    };
    let to = Writer { connection, stream, records: Vec::new(), owed: 0 };
    Wire::over(socket, Box::new(from), Box::new(to))
}

struct Reader {
    connection: Arc<Mutex<Connection>>,
    stream: Stream,
    /// Whether the handshake is complete, and all of it is sent.
    established: bool,
    records: Vec<u8>,
    /// The part of `records` that the connection has not processed yet.
    there: std::ops::Range<usize>,
}

impl Read for Reader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.lock().reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // This includes the end of the connection, which the other side has announced.
                read => return read,
            }
            if self.there.is_empty() {
                let count = self.stream.read(&mut self.records)?;
                if count == 0 {
                    return Ok(0);
                }
                self.there = 0..count;
            }
            self.feed()?;
        }
    }
}

impl Reader {
    /// Passes read data to the connection.
    fn feed(&mut self) -> io::Result<()> {
        let mut connection = self.connection.lock();
        let mut some = &self.records[self.there.clone()];
        self.there.start += connection.read_tls(&mut some)?;
        let taken = connection.process_new_packets();
        if self.established && taken.is_ok() {
            return Ok(());
        }
        let through = !connection.is_handshaking();
        let mut answer = Vec::new();
        while connection.wants_write() {
            connection.write_tls(&mut answer)?;
        }
        drop(connection);
        if let Err(why) = taken {
            // Informs the other side of the reason, if it still reads; after the handshake this
            // ends the connection in any case.
            if !self.established {
                let _ = self.stream.write_all(&answer);
            }
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        self.stream.write_all(&answer)?;
        self.established = through;
        Ok(())
    }
}

struct Writer {
    connection: Arc<Mutex<Connection>>,
    stream: Stream,
    /// Encrypted bytes to write before anything else.
    records: Vec<u8>,
    /// The number of plain bytes in them that have not been reported as written yet.
    owed: usize,
}

impl Sink for Writer {
    /// After an error `WouldBlock`, the caller must pass the same bytes again.
    fn write(&mut self, bytes: &[u8], wait: bool) -> io::Result<usize> {
        if self.owed == 0 {
            let mut connection = self.connection.lock();
            let record = &bytes[..bytes.len().min(RECORD)];
            self.owed = connection.writer().write(record)?;
            while connection.wants_write() {
                connection.write_tls(&mut self.records)?;
            }
        }
        while !self.records.is_empty() {
            match Sink::write(&mut self.stream, &self.records, wait) {
                Ok(count) => drop(self.records.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(std::mem::take(&mut self.owed))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    /// Returns the keys of an instance that trusts itself alone.
    fn keys() -> Keys {
        let directory = tempfile::tempdir().expect("a directory");
        let [certificate, key] = ["own.pem", "key.pem"].map(|name| directory.path().join(name));
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("signed");
        std::fs::write(&certificate, own.cert.pem()).expect("written");
        std::fs::write(&key, own.signing_key.serialize_pem()).expect("written");
        Keys::load(&certificate, &certificate, &key).expect("keys")
    }

    #[test]
    fn the_reader_of_an_established_connection_writes_nothing() {
        let keys = keys();
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let mut raw = ours.try_clone().expect("another descriptor");
        let mut client = keys.connect(Socket::new(ours), "localhost").expect("a client");
        let mut server = keys.accept(Socket::new(theirs)).expect("a server");
        let greet = |wire: &mut Wire| {
            let mut heard = [0; 5];
            wire.write_all(b"hello").expect("written");
            wire.read_exact(&mut heard).expect("read");
            assert_eq!(&heard, b"hello");
        };
        thread::scope(|scope| {
            scope.spawn(|| greet(&mut client));
            greet(&mut server);
        });
        // A record that nobody encrypted.
        raw.write_all(&[23, 3, 3, 0, 20]).and_then(|()| raw.write_all(&[0; 20])).expect("written");
        let error = server.read(&mut [0]).expect_err("it cannot be decrypted");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        raw.set_nonblocking(true).expect("set");
        let nothing = raw.read(&mut [0]).expect_err("nothing was written");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }
}
