//! The export of traces to the formats of other tools.
//!
//! Exported times are as measured. The cost of measuring is subtracted only in reports, which can
//! show the error as well.

mod error;
mod firefox;
mod folded;
mod names;
mod ndjson;
mod packets;
mod perfetto;
mod protobuf;

pub use self::error::{Error, MAX_EVENTS};
pub use self::firefox::firefox;
pub use self::folded::{Folded, draw_stacks, flame_graph, folded, frame};
pub use self::ndjson::ndjson;
pub use self::perfetto::perfetto;
