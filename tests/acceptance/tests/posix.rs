//! pjdfstest: some four hundred cases of the guarantees of POSIX and Linux, for users with and
//! without privileges.

use refit_acceptance::{CacheMode, Limit, Pace, Ran, Served, possible, run, skip, tool};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

/// The users as which the cases act.
const USERS: [&str; 2] = ["tests", "pjdfstest"];

/// The configuration. `naptime` is longer than the granularity of time stamps of the host's file
/// systems (4 ms).
const SETTINGS: &str = "\
[features]
posix_fallocate = {}
utime_now = {}
utimensat = {}
rename_ctime = {}

[settings]
naptime = 0.01
allow_remount = false

[dummy_auth]
entries = [[\"tests\", \"tests\"], [\"pjdfstest\", \"pjdfstest\"]]
";

/// Returns whether the users exist; creates them if not.
fn users() -> bool {
    // Serializes the tests, since two of them would create the same user.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock();
    let known = fs::read_to_string("/etc/passwd").unwrap_or_default();
    USERS.iter().all(|user| {
        let there = known.lines().any(|line| line.starts_with(&format!("{user}:")));
        there || add(user)
    })
}

fn add(user: &str) -> bool {
    let mut useradd = Command::new("useradd");
    useradd.args(["--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", user]);
    let added = useradd.status().is_ok_and(|status| status.success());
    if !added {
        skip(&format!("there is no user {user}, and none can be made"));
    }
    added
}

fn pjdfstest(program: &Path, served: &Served) -> Ran {
    let settings = served.scratch().join("pjdfstest.toml");
    fs::write(&settings, SETTINGS).unwrap();
    let elsewhere = served.scratch().join("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    let mut command = Command::new(program);
    command.arg("-c").arg(settings).arg("-p").arg(served.directory()).arg("-s").arg(elsewhere);
    run(&mut command, "", Limit::seconds(300))
}

fn no_case_fails(name: &str, cache: CacheMode, pace: Option<Pace>) {
    let Some(program) = possible().then(|| tool("pjdfstest")).flatten() else { return };
    if !users() {
        return;
    }
    if !refit_sys::credentials::anybody_reaches(Path::new("/var/tmp")) {
        return skip("other users may not pass through the directories above /var/tmp");
    }
    let mut served = Served::new(name, cache, 4 << 20);
    // Most files of the cases are empty and short-lived; this one exists all the time.
    fs::write(served.path("lasting"), "a file").unwrap();
    let storm = pace.map(|pace| served.storm(pace));
    let ran = pjdfstest(&program, &served);
    storm.map(refit_acceptance::Storm::stop);
    let summary = ran.output.lines().rfind(|line| !line.is_empty()).unwrap_or_default();
    eprintln!("{name}: {summary}");
    // Each failing case with its details, which are the indented lines behind it.
    let mut failing = false;
    let failed = ran.output.lines().filter(|line| {
        failing = line.contains("FAILED") || (failing && line.starts_with(char::is_whitespace));
        failing
    });
    let failed: Vec<_> = failed.collect();
    assert!(
        ran.status.success() && summary.contains("0 failed"),
        "{summary}\n{failed:#?}\n{}",
        ran.errors
    );
    let passed = summary.split("passed").next().and_then(|text| text.split_whitespace().last());
    let passed: u32 = passed.and_then(|number| number.parse().ok()).unwrap_or(0);
    assert!(passed > 300, "{summary}: too few cases have run");
    served.unmount();
}

#[test]
fn no_case_fails_passthrough() {
    no_case_fails("pp", CacheMode::Passthrough, None);
}

#[test]
fn no_case_fails_exclusive() {
    no_case_fails("pe", CacheMode::Exclusive, None);
}

#[test]
fn no_case_fails_kernel() {
    no_case_fails("pk", CacheMode::Kernel, None);
}

#[test]
fn no_case_fails_direct() {
    no_case_fails("pd", CacheMode::Direct, None);
}

#[test]
fn no_case_fails_while_swapping_kernel() {
    no_case_fails("pks", CacheMode::Kernel, Some(Pace::EachMillisecond));
}

#[test]
fn no_case_fails_while_swapping_direct() {
    no_case_fails("pds", CacheMode::Direct, Some(Pace::EachMillisecond));
}
