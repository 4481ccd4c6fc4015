//! Digits drawn by hand in a web page, read by an imported network.
//!
//! `scripts/web.sh` compiles this crate to WebAssembly twice, with the feature `webgpu` and without, and tries the page in
//! Chromium. The page takes the module that can use the GPU where the browser has WebGPU, else the smaller one.

mod classifier;
mod drawing;

mod digits {
    include!(concat!(env!("OUT_DIR"), "/model/model.rs"));
}

pub use classifier::Classifier;
pub use drawing::Drawing;

use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = console)]
    fn error(text: &str);
}

/// Has panics told on the browser's console, which shows no more of them than that the program ended.
#[wasm_bindgen(start)]
pub fn tell_panics() {
    std::panic::set_hook(Box::new(|panic| error(&panic.to_string())));
}
