//! Every operation on a file that claims to be a trace, for tests with damaged files and for
//! fuzzing.

use std::io;
use std::path::Path;

use refit_instruments::analysis::{Compensation, Filter, summarize};
use refit_instruments::export::{self, Folded};
use refit_instruments::read::Trace;

/// Opens a file and, if it is a trace, reads, summarizes and exports all of it.
pub(crate) fn exhaust(path: &Path) {
    let trace = match Trace::open(&[path]) {
        Ok(trace) => trace,
        Err(e) => {
            assert!(e.to_string().contains("; "), "says what to do: {e}");
            return;
        }
    };
    let (mut count, mut latest) = (0, 0);
    let mut records = trace.records();
    let mut late = 0;
    for seen in records.by_ref() {
        let Ok(seen) = seen else { break };
        late += u64::from(seen.record.time < latest);
        latest = latest.max(seen.record.time);
        count += 1;
    }
    assert_eq!((count + records.torn(), late), (trace.len(), records.late()));
    let filter = Filter::default();
    let summary = summarize(&trace, &filter).expect("the file is there");
    assert_eq!(summary.records, count);
    let _ = (trace.losses().sum(), trace.gaps().len(), Compensation::new(&trace).cost());
    let nowhere = &mut io::sink();
    let folded = [Folded::Intervals, Folded::OffCpu].map(|what| {
        export::folded(&trace, &filter, what, nowhere)
            .and_then(|()| export::flame_graph(&trace, &filter, what, nowhere))
    });
    let others = [export::perfetto, export::firefox, export::ndjson]
        .map(|export| export(&trace, &filter, nowhere));
    for exported in folded.into_iter().chain(others) {
        match exported {
            Ok(()) | Err(export::Error::Nothing) => {}
            Err(e) => panic!("the file is there, and nowhere takes everything: {e}"),
        }
    }
}
