//! Every case that source without a runtime can be made of.
#![no_std]

include!(concat!(env!("OUT_DIR"), "/cases.rs"));
