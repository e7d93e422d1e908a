//! Two layers and what they say to each other, by each transport.

mod here;
mod pair;
mod process;
mod tcp;
mod tls;
