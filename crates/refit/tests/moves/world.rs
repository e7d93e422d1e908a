//! The worlds in which programs are run: without refit, under an instance of their own, or at the
//! first of two booted instances.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::modes::{Hosts, How, Mode};
use crate::stage::Stage;

/// The world of one cell of the matrix. Everything that was created for it is removed with it.
pub(crate) struct World {
    how: How,
    hosts: Hosts,
    booted: bool,
    stage: Stage,
    network: Option<Network>,
}

impl World {
    /// Creates a world; returns the obstacle if that is not possible.
    pub(crate) fn new(mode: &Mode, hosts: Hosts) -> Result<Self, String> {
        let network = if hosts == Hosts::Tcp { Some(Network::new("moves")?) } else { None };
        let how = mode.how.clone();
        let mut world = Self { how, hosts, booted: false, stage: Stage::new(), network };
        if !matches!(world.how, How::Alone | How::Stays) {
            world.boot()?;
        }
        Ok(world)
    }

    fn boot(&mut self) -> Result<(), String> {
        self.booted = true;
        let more = std::env::var("REFIT_MOVES_BOOT").unwrap_or_default();
        let more: Vec<&str> = more.split_whitespace().collect();
        if self.hosts == Hosts::One {
            return finish(self.refit(0, &[&["boot", "--instances", "2"], &more[..]].concat()));
        }
        // The waits of an instance on a busy machine are not tested.
        let common = ["boot", "--instances", "1", "--insecure", "--silence", "30s"];
        let common = [&common[..], &more].concat();
        finish(self.refit(0, &[&common[..], &["--number", "0", "--listen", ADDRESS]].concat()))?;
        finish(self.refit(1, &[&common[..], &["--number", "1", "--join", ADDRESS]].concat()))
    }

    /// Returns a command at one of the hosts.
    fn at(&self, host: usize, program: &Path) -> Command {
        match &self.network {
            Some(network) => network.at(host, program),
            None => Command::new(program),
        }
    }

    /// Runs `refit` at one of the hosts, which does not see the other's files.
    pub(crate) fn refit(&self, host: usize, arguments: &[&str]) -> Command {
        let mut command = self.at(host, Path::new(env!("CARGO_BIN_EXE_refit")));
        let sockets =
            if self.hosts == Hosts::Tcp { format!("sockets{host}") } else { "sockets".into() };
        command.args(arguments).env("REFIT_RUNTIME_DIR", self.stage.path(&sockets));
        if matches!(self.how, How::Roams("10ms")) {
            // Checks that the memory is the same everywhere, after each step.
            command.env("REFIT_MOVE_CHECK", "1");
        }
        if let How::Fails(step) = &self.how {
            command.env("REFIT_MOVE_FAULT", step);
        }
        command
    }

    /// Returns the command of a program in this mode. The program has the process of the command.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = match &self.how {
            How::Alone => return self.at(0, program),
            How::Stays => self.refit(0, &["run", "--movable"]),
            How::Pushed => self.refit(0, &["run", "--on", "0", "--movable"]),
            How::Roams(often) => self.refit(0, &["run", "--on", "0", "--movable", "--roam", often]),
            How::Fails(_) => self.refit(0, &["run", "--on", "0", "--movable", "--roam", "10ms"]),
        };
        command.arg("--").arg(program);
        command
    }

    /// Moves a program to this instance. Returns whether that succeeded.
    pub(crate) fn push(&self, process: u32, to: &str) -> bool {
        let mut command = self.refit(0, &["move", &process.to_string(), to]);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    pub(crate) fn pushes(&self) -> bool {
        self.how == How::Pushed
    }

    /// Returns whether each program has an instance to itself.
    pub(crate) fn has_own(&self) -> bool {
        self.how == How::Stays
    }

    /// Returns the instances that follow a process, which end with all that they follow.
    pub(crate) fn instances_of(&self, process: u32) -> Vec<u32> {
        let Ok(output) = self.refit(0, &["--json", "ps"]).output() else { return Vec::new() };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let parse = |line: &str| {
            let one: serde_json::Value = serde_json::from_str(line).ok()?;
            let number = |name: &str| u32::try_from(one[name].as_u64()?).ok();
            (number("pid")? == process).then(|| number("instance")).flatten()
        };
        text.lines().filter_map(parse).collect()
    }

    /// Returns the instances' logs of their own errors.
    pub(crate) fn logs(&self) -> String {
        let logs = self.stage.sockets().into_iter().filter(|name| name.ends_with(".log"));
        let texts = logs.map(|log| self.stage.path("sockets").join(log));
        texts.filter_map(|log| std::fs::read_to_string(log).ok()).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for host in 0..if self.booted { self.network.as_ref().map_or(1, |_| 2) } else { 0 } {
            let _ = self
                .refit(host, &["shutdown"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
        self.stage.forget_losses();
    }
}

/// The address at which the first instance listens.
pub(crate) const ADDRESS: &str = "10.213.97.1:7383";

/// Two network namespaces that see each other, and nothing else.
pub(crate) struct Network {
    names: [String; 2],
}

impl Network {
    /// Creates them for the part of the tests with this name.
    pub(crate) fn new(part: &str) -> Result<Self, String> {
        let process = std::process::id();
        let names = [0, 1].map(|host| format!("refit-{part}-{process}-{host}"));
        // From here on everything that exists is removed, also after a failure.
        let network = Self { names };
        let [first, second] = &network.names;
        for name in &network.names {
            ip(&["netns", "add", name])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        ip(&[
            "-n", first, "link", "add", "peer", "type", "veth", "peer", "name", "peer", "netns",
            second,
        ])?;
        for (name, address) in [(first, "10.213.97.1/30"), (second, "10.213.97.2/30")] {
            ip(&["-n", name, "address", "add", address, "dev", "peer"])?;
            ip(&["-n", name, "link", "set", "peer", "up"])?;
        }
        Ok(network)
    }

    /// Returns a command in one of them.
    pub(crate) fn at(&self, host: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[host]]).arg(program);
        command
    }

    /// Cuts or joins the wire between them.
    pub(crate) fn wire(&self, state: &str) {
        ip(&["-n", &self.names[0], "link", "set", "peer", state]).expect("it is there");
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            let _ =
                Command::new("ip").args(["netns", "delete", name]).stderr(Stdio::null()).status();
        }
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new("ip");
    command.args(arguments);
    finish(command)
}

/// Runs a command; returns its output if it failed.
fn finish(mut command: Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {}", said.trim())) }
}
