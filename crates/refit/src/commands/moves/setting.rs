//! The setting of booted instances: on which hosts the others are, and how pages reach them.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use refit_migrate::{Lock, Protocol, Security, Setting, Window};

use crate::format;

/// Arguments of `refit boot` that each instance is given.
#[derive(Clone, Debug, Args)]
pub(crate) struct SettingArgs {
    /// Listen here for instances of other hosts; further instances take the next ports
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Join this listening instance of another host, and every instance that it knows
    #[arg(long, value_name = "HOST:PORT")]
    join: Vec<String>,
    /// Certificate of the authority that signed the certificates of all instances (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["certificate", "key"])]
    authority: Option<PathBuf>,
    /// Certificate of this host's instances (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["authority", "key"])]
    certificate: Option<PathBuf>,
    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["authority", "certificate"])]
    key: Option<PathBuf>,
    /// Use no certificates, on a network where everybody is trusted
    #[arg(long, conflicts_with = "authority")]
    insecure: bool,
    /// Time without a message after which an instance of another host counts as dead; give all
    /// instances the same
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = format::parse_duration)]
    silence: Duration,
    /// Limit the memory of each instance for programs that move, e.g. 2G: frames of programs that
    /// began there, and pages that it holds for others (default: no limit)
    #[arg(long, value_name = "SIZE", value_parser = format::parse_memory)]
    memory: Option<u64>,
    /// The way in which instances of one host access the memory of each other
    #[arg(long, value_enum, default_value_t = Pages::Borrow)]
    pages: Pages,
    /// Number of pages to move, or of mappings to borrow, at once: 1 to 64, or `adaptive`
    #[arg(long, value_name = "COUNT", default_value = "adaptive", value_parser = ahead)]
    ahead: Ahead,
    /// Protocol by which a program's instances find what is mapped at an address; `refit swap
    /// retrieval:PID` changes it later
    #[arg(long, value_enum, default_value_t = Retrieval::Directory)]
    retrieval: Retrieval,
    /// Protocol by which a program's instances agree on who changes its memory
    #[arg(long, value_enum, default_value_t = Locking::Queue)]
    lock: Locking,
    /// Keep idle processors of this host awake while programs have threads at other instances:
    /// calls and moves take half the time or less, but the host uses more power
    #[arg(long)]
    awake: bool,
}

/// The protocols by which a program's instances agree on who changes its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Locking {
    /// The instance where the program began makes all changes, one after the other
    Queue,
    /// Instances with memory of the program agree on each change first, by Lamport's algorithm
    Lamport,
}

/// The protocols by which a program's instances find what is mapped at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Retrieval {
    /// Ask the instance where the program began
    Directory,
    /// Ask all instances at once
    All,
    /// Ask one instance, which answers or asks the next
    Chain,
    /// Ask all instances with memory of the program at once
    Group,
}

impl Retrieval {
    fn protocol(self) -> Protocol {
        match self {
            Self::Directory => Protocol::Directory,
            Self::All => Protocol::All,
            Self::Chain => Protocol::Chain,
            Self::Group => Protocol::Group,
        }
    }
}

/// The ways in which the instances of one host have memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pages {
    /// Share memory: borrow mappings of it
    Borrow,
    /// Move pages between instances, as between hosts
    Move,
}

/// The number of pages that are moved at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ahead(Window);

fn ahead(text: &str) -> Result<Ahead, String> {
    match (text, text.parse()) {
        ("adaptive", _) => Ok(Ahead(Window::Adaptive)),
        (_, Ok(count @ 1..=64)) => Ok(Ahead(Window::Fixed(count))),
        _ => Err("give a number from 1 to 64, or `adaptive`".to_owned()),
    }
}

impl SettingArgs {
    /// Returns the arguments for the instance at this place after the first.
    pub(crate) fn of(&self, place: u16) -> Self {
        let mut own = self.clone();
        // Port 0 means any free port, for each of them.
        if let Some(address) = own.listen.as_mut().filter(|address| address.port() != 0) {
            address.set_port(address.port().saturating_add(place));
        }
        own
    }

    /// Returns the equivalent arguments for a process in another directory.
    pub(crate) fn arguments(&self) -> io::Result<Vec<OsString>> {
        let mut words: Vec<OsString> = Vec::new();
        let mut say = |name: &str, value: OsString| words.extend([name.into(), value]);
        if let Some(address) = self.listen {
            say("--listen", address.to_string().into());
        }
        for address in &self.join {
            say("--join", address.into());
        }
        let files = [("--authority", &self.authority), ("--certificate", &self.certificate)];
        for (name, file) in files.into_iter().chain([("--key", &self.key)]) {
            if let Some(file) = file {
                say(name, std::path::absolute(file)?.into());
            }
        }
        if self.silence != Setting::default().silence {
            say("--silence", format!("{}us", self.silence.as_micros()).into());
        }
        if let Some(bytes) = self.memory {
            say("--memory", bytes.to_string().into());
        }
        if self.pages == Pages::Move {
            say("--pages", "move".into());
        }
        if let Window::Fixed(count) = self.ahead.0 {
            say("--ahead", count.to_string().into());
        }
        if self.retrieval != Retrieval::Directory {
            say("--retrieval", self.retrieval.protocol().name().into());
        }
        if self.lock == Locking::Lamport {
            say("--lock", "lamport".into());
        }
        let flags = [("--insecure", self.insecure), ("--awake", self.awake)];
        words.extend(flags.into_iter().filter(|(_, given)| *given).map(|(name, _)| name.into()));
        Ok(words)
    }

    pub(crate) fn setting(&self) -> Setting {
        let file = |path: &Option<PathBuf>| path.as_deref().map(Path::to_owned);
        let mutual = file(&self.authority).zip(file(&self.certificate)).zip(file(&self.key));
        let security = match mutual {
            Some(((ca, certificate), key)) => Security::Mutual { ca, certificate, key },
            None => Security::None { anywhere: self.insecure },
        };
        Setting {
            listen: self.listen,
            join: self.join.clone(),
            security,
            silence: self.silence,
            memory: self.memory,
            always_move: self.pages == Pages::Move,
            window: self.ahead.0,
            retrieval: self.retrieval.protocol(),
            lock: match self.lock {
                Locking::Queue => Lock::Queue,
                Locking::Lamport => Lock::Lamport,
            },
            awake: self.awake,
        }
    }
}
