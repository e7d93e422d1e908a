//! `refit mount --compose`: mounts of building blocks that a plan chooses and connects.

mod stage;

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};
use stage::Stage;

fn plan() -> Value {
    json!({ "parts": {
        "pages": { "block": "fcm:partitioned", "connect": { "fr": "disk", "pm": "frames" } },
        "disk": { "block": "fr:host" },
        "frames": { "block": "pm:sweep", "connect": { "policy": "choice" } },
        "choice": { "block": "policy:clock" },
    } })
}

#[test]
fn a_mount_is_built_as_its_plan_says() {
    let stage = Stage::new();
    let file = stage.path("plan.json");
    fs::write(&file, plan().to_string()).expect("written");
    let Some(mut serving) = stage.serve_with(&["--compose", file.to_str().expect("UTF-8")]) else {
        return;
    };
    fs::write(stage.path("mnt").join("a"), "text").expect("written");
    let (code, stdout, stderr) = stage.run(&["show", "fcm:/a"]);
    assert_eq!(code, 0, "{stderr}");
    let at = serving.mountpoint.display();
    for line in [
        "  fcm:/a  partitioned".to_owned(),
        "  ├─ fr → fr:/a  host".to_owned(),
        format!("  └─ pm → pm:{at}  sweep"),
        format!("     └─ policy → policy:{at}  clock"),
    ] {
        assert!(stdout.contains(&line), "{line} is not in: {stdout}");
    }
    let (_, stdout, _) = stage.run(&["classes"]);
    assert!(stdout.contains("policy"), "{stdout}");
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), 0);
    assert_eq!(fs::read_to_string(stage.path("source").join("a")).expect("it is there"), "text");
}

#[test]
fn a_plan_that_does_not_fit_is_refused_with_all_that_is_wrong() {
    let stage = Stage::new();
    if !stage::can_mount() {
        println!("skipped: no /dev/fuse, or no permission to mount");
        return;
    }
    let file = stage.path("plan.json");
    let path = |name: &str| stage.path(name).to_str().expect("UTF-8").to_owned();
    let (source, mnt, plan_path) = (path("source"), path("mnt"), path("plan.json"));
    let refuses = |plan: &str, says: &[&str]| {
        fs::write(&file, plan).expect("written");
        says.iter().for_each(|says| {
            stage.refuses(&["mount", &source, &mnt, "--compose", &plan_path], says);
        });
    };
    let mut wrong = plan();
    wrong["parts"]["pages"]["connect"]["pm"] = json!("disk");
    wrong["parts"]["frames"]["block"] = json!("pm:none");
    let says = ["port pm of pages needs pm, but disk exports fr", "there are: fcm:partitioned, "];
    refuses(&wrong.to_string(), &says);
    let mut open = plan();
    open["parts"]["frames"]["connect"] = json!({});
    refuses(&open.to_string(), &["port policy of frames is not connected"]);
    refuses("{\"parts\": {\"a\": {}}}", &["missing field `block`"]);
    refuses("", &["read the composition "]);
    let (code, _, stderr) = stage.run(&["mount", &source, &mnt, "--compose", "/none/such"]);
    assert!(code == 1 && stderr.contains("No such file"), "{stderr}");
    let both = ["mount", &source, &mnt, "--compose", &plan_path, "--implementation", "shared"];
    assert_eq!(stage.run(&both).0, 2);
}
