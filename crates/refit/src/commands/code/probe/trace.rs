//! The trace that records of probes go to.

use std::path::{Path, PathBuf};

use refit_instruments::session::{Geometry, Session};
use refit_instruments::write::{Options, Recorder};
use refit_probe::spec::Spec;

use crate::failure::Failure;
use crate::format;
use crate::output::Output;

/// A recording of what probes write.
pub(super) struct Trace {
    session: &'static Session,
    recorder: Recorder,
    path: PathBuf,
}

impl Trace {
    /// Begins one in `output` if the probes write records; `command` is what it is about.
    pub(super) fn begin(
        probes: &[Spec],
        output: Option<&Path>,
        command: Vec<String>,
    ) -> Result<Option<Self>, Failure> {
        let records = probes.iter().any(Spec::records);
        let path = match (output, records) {
            (_, false) => return Ok(None),
            (Some(path), true) => path.to_owned(),
            (None, true) => {
                let obstacle = "events and spans are recorded into a trace, and none is named";
                return Err(Failure::new("watch", obstacle, "name a file with --output"));
            }
        };
        let operation = || format!("record into {}", path.display());
        let session = Session::create(Geometry::of_host())
            .map_err(|e| Failure::new(operation(), e.to_string(), "see `refit doctor`"))?;
        let options = Options { command, ..Options::default() };
        let recorder = Recorder::start(session, &path, options).map_err(|e| {
            Failure::new(operation(), e.to_string(), "name another file with --output")
        })?;
        Ok(Some(Self { session, recorder, path }))
    }

    pub(super) fn session(&self) -> &Session {
        self.session
    }

    /// Ends it, and says what there is.
    pub(super) fn end(self, out: &mut Output) -> Result<(), Failure> {
        let summary = self.recorder.stop();
        let (file, records) = (self.path.display(), summary.end.written);
        say!("refit: {} in {file}; see `refit report`", format::counted(records, "record"));
        let lost = summary.end.lost_full + summary.end.lost_torn;
        if lost > 0 {
            say!("refit: {} lost: the buffers were full", format::counted(lost, "record"));
        }
        if let Some(trouble) = summary.trouble {
            let operation = format!("write {file}");
            return Err(Failure::new(
                operation,
                trouble.to_string(),
                "make room, or name another file with --output",
            ));
        }
        out.flush()
    }
}
