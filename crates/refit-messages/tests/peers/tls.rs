//! Tests of instances that authenticate each other by certificates.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use refit_messages::{MessageError, Refusal, Security};

use crate::pair::{LONG, LOOPBACK, Pair, builder, next};
use crate::tcp::all_there_is;

/// Creates a certificate authority, and a certificate signed by it for a host.
fn certified(directory: &Path, name: &str, host: &str) -> Security {
    fs::create_dir_all(directory.join(name)).unwrap();
    let file = |what: &str| directory.join(name).join(what);
    let authority = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = params.self_signed(&authority).unwrap();
    let issuer = Issuer::new(params, authority);
    let own = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec![host.to_owned()]).unwrap();
    fs::write(file("ca.pem"), root.pem()).unwrap();
    fs::write(file("own.pem"), leaf.signed_by(&own, &issuer).unwrap().pem()).unwrap();
    fs::write(file("key.pem"), own.serialize_pem()).unwrap();
    Security::Mutual { ca: file("ca.pem"), certificate: file("own.pem"), key: file("key.pem") }
}

#[test]
fn what_holds_on_one_host_holds_by_tls() {
    let directory = tempfile::tempdir().unwrap();
    let good = certified(directory.path(), "good", "localhost");
    all_there_is(&Pair::by_tcp([&good, &good]));
}

#[test]
fn who_shows_no_certificate_or_a_strange_one_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let good = certified(directory.path(), "good", "localhost");
    let other = certified(directory.path(), "other", "localhost");
    let elsewhere = certified(directory.path(), "elsewhere", "elsewhere.example");
    let (one, by_one) = builder(1);
    let one = one.silence(LONG).start().unwrap();
    let address = one.listen(LOOPBACK, &good).unwrap();
    let join = |security: &Security| {
        let (two, _) = builder(2);
        two.start().unwrap().join(&format!("localhost:{}", address.port()), security).unwrap_err()
    };
    // The joining instance does not know this instance's authority.
    let refused = join(&other);
    assert!(matches!(refused, MessageError::Refused { why: Refusal::Tls(_), .. }), "{refused}");
    assert!(next(&by_one.refused).contains("no secure connection"));
    // The joining instance knows this instance's authority, but its own certificate is signed by
    // another one.
    let (Security::Mutual { ca, .. }, Security::Mutual { certificate, key, .. }) = (&good, &other)
    else {
        panic!("they are")
    };
    let mixed =
        Security::Mutual { ca: ca.clone(), certificate: certificate.clone(), key: key.clone() };
    let refused = join(&mixed);
    assert!(matches!(refused, MessageError::Refused { .. }), "{refused}");
    assert!(next(&by_one.refused).contains("no secure connection"));
    // The joining instance speaks no TLS, or nothing at all.
    let refused = join(&Security::None { anywhere: false });
    assert!(matches!(refused, MessageError::Refused { .. }), "{refused}");
    next(&by_one.refused);
    TcpStream::connect(address).unwrap().write_all(&[0xff; 300]).unwrap();
    next(&by_one.refused);
    assert!(one.peers().is_empty());
    one.close();

    // A certificate for another name, and a file that is no certificate.
    let (three, _) = builder(3);
    let three = three.start().unwrap();
    let address = three.listen(LOOPBACK, &elsewhere).unwrap();
    let (two, _) = builder(2);
    let two = two.start().unwrap();
    let refused = two.join(&format!("localhost:{}", address.port()), &elsewhere).unwrap_err();
    assert!(matches!(refused, MessageError::Refused { why: Refusal::Tls(_), .. }), "{refused}");
    let none = Security::Mutual { ca: key.clone(), certificate: ca.clone(), key: ca.clone() };
    assert!(matches!(three.listen(LOOPBACK, &none), Err(MessageError::Certificate { .. })));
    three.close();
}
