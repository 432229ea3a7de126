//! TLS: a certificate and its key, read anew when their files change.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        Error, InconsistentKeys, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
    server::TlsStream,
};

use crate::platform::{Stamp, stamp_of};
use crate::render::say;

/// How long a handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Most bytes of a file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The certificate that is shown to clients, with its key.
pub(super) struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    known: Mutex<KnownFiles>,
}

struct KnownFiles {
    stamps: [Option<Stamp>; 2],
    acceptor: TlsAcceptor,
}

impl Tls {
    pub(super) fn open(certificate: PathBuf, key: PathBuf) -> Result<Self, String> {
        // Before they are read: what changes in the meantime is read again.
        let stamps = [stamp_of(&certificate), stamp_of(&key)];
        let acceptor = read(&certificate, &key)?;
        Ok(Self { certificate, key, known: Mutex::new(KnownFiles { stamps, acceptor }) })
    }

    /// Greets a client; none if it does not come to an agreement in time.
    pub(super) async fn greet(
        &self,
        stream: TcpStream,
        idle: Duration,
    ) -> Option<TlsStream<TcpStream>> {
        let acceptor = self.acceptor();
        timeout(HANDSHAKE_MAX.min(idle), acceptor.accept(stream)).await.ok()?.ok()
    }

    /// What speaks for the files as they are now. Where they cannot be used, as when only one of
    /// both has been replaced yet, what was known before still counts.
    fn acceptor(&self) -> TlsAcceptor {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = [stamp_of(&self.certificate), stamp_of(&self.key)];
        if stamps != known.stamps {
            known.stamps = stamps;
            match read(&self.certificate, &self.key) {
                Ok(acceptor) => known.acceptor = acceptor,
                Err(problem) => {
                    say(&format!("legwork: the certificate stays as it was: {problem}"));
                }
            }
        }
        known.acceptor.clone()
    }
}

/// Reads a certificate and its key.
fn read(certificate: &Path, key: &Path) -> Result<TlsAcceptor, String> {
    let shown = certificate.display();
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(&content("--tls-cert", certificate)?).collect();
    let chain = chain.map_err(|error| format!("--tls-cert {shown}: {error}"))?;
    if chain.is_empty() {
        return Err(format!("--tls-cert {shown}: there is no certificate in it, as PEM has one"));
    }
    let secret = PrivateKeyDer::from_pem_slice(&content("--tls-key", key)?).map_err(|_| {
        let shown = key.display();
        format!(
            "--tls-key {shown}: there is no private key in it, as PEM has one without a password"
        )
    })?;
    let provider = Arc::new(ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret));
    let mut config = config.map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            format!("--tls-key {} is not the key of --tls-cert {shown}", key.display())
        }
        other => format!("--tls-cert {shown}, --tls-key {}: {other}", key.display()),
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn content(option: &str, path: &Path) -> Result<Vec<u8>, String> {
    let failed = |error: io::Error| format!("{option} {}: {error}", path.display());
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(format!("{option} {}: it is no file", path.display()));
    }
    let mut content = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX).read_to_end(&mut content).map_err(failed)?;
    Ok(content)
}
