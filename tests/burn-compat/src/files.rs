// Storing a module in every format and precision, written once for both libraries; `root` is either.

use root::module::Module;
use root::record::{
    BinBytesRecorder, BinFileRecorder, BinGzFileRecorder, DoublePrecisionSettings, FileRecorder,
    FullPrecisionSettings, HalfPrecisionSettings, JsonGzFileRecorder, NamedMpkBytesRecorder, NamedMpkFileRecorder,
    NamedMpkGzFileRecorder, PrecisionSettings, PrettyJsonFileRecorder, Recorder,
};
use root::tensor::backend::Backend;
use std::path::{Path, PathBuf};

/// Does something with a file of every format and precision: its path without extension, and what it stores or loads.
pub trait EachFile<B: Backend> {
    fn file<R: FileRecorder<B>>(&mut self, recorder: &R, path: PathBuf);
    fn bytes<R: Recorder<B, RecordArgs = (), RecordOutput = Vec<u8>, LoadArgs = Vec<u8>>>(
        &mut self,
        recorder: &R,
        path: PathBuf,
    );
}

fn each_of<B: Backend, S: PrecisionSettings>(dir: &Path, precision: &str, name: &str, each: &mut impl EachFile<B>) {
    let path = dir.join(format!("{name}_{precision}"));
    each.file(&NamedMpkFileRecorder::<S>::new(), path.clone());
    each.file(&NamedMpkGzFileRecorder::<S>::new(), path.clone());
    each.file(&BinFileRecorder::<S>::new(), path.clone());
    each.file(&BinGzFileRecorder::<S>::new(), path.clone());
    each.file(&PrettyJsonFileRecorder::<S>::new(), path.clone());
    each.file(&JsonGzFileRecorder::<S>::new(), path.clone());
    each.bytes(&BinBytesRecorder::<S>::default(), path.with_extension("memory.bin"));
    each.bytes(&NamedMpkBytesRecorder::<S>::default(), path.with_extension("memory.mpk"));
}

pub fn each<B: Backend>(dir: &Path, name: &str, each: &mut impl EachFile<B>) {
    each_of::<B, FullPrecisionSettings>(dir, "full", name, each);
    each_of::<B, HalfPrecisionSettings>(dir, "half", name, each);
    each_of::<B, DoublePrecisionSettings>(dir, "double", name, each);
}

/// Stores a module.
pub struct Save<M>(pub M);

impl<B: Backend, M: Module<B>> EachFile<B> for Save<M> {
    fn file<R: FileRecorder<B>>(&mut self, recorder: &R, path: PathBuf) {
        self.0.clone().save_file(path, recorder).expect("the record can be saved");
    }

    fn bytes<R: Recorder<B, RecordArgs = (), RecordOutput = Vec<u8>, LoadArgs = Vec<u8>>>(
        &mut self,
        recorder: &R,
        path: PathBuf,
    ) {
        let bytes = recorder.record(self.0.clone().into_record(), ()).expect("the record can be made");
        std::fs::write(path, bytes).expect("the file can be written");
    }
}

/// Loads into a blank module from one folder and stores it in another.
pub struct Copy<'a, M> {
    pub blank: M,
    pub to: &'a Path,
}

impl<M> Copy<'_, M> {
    fn target(&self, path: &Path) -> PathBuf {
        self.to.join(path.file_name().expect("the path has a name"))
    }
}

impl<B: Backend, M: Module<B>> EachFile<B> for Copy<'_, M> {
    fn file<R: FileRecorder<B>>(&mut self, recorder: &R, path: PathBuf) {
        let target = self.target(&path);
        let module = self.blank.clone();
        let module = module.load_file(path.clone(), recorder, &B::Device::default());
        let module = module.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        module.save_file(target, recorder).expect("the record can be saved");
    }

    fn bytes<R: Recorder<B, RecordArgs = (), RecordOutput = Vec<u8>, LoadArgs = Vec<u8>>>(
        &mut self,
        recorder: &R,
        path: PathBuf,
    ) {
        let bytes = std::fs::read(&path).expect("the file can be read");
        let record = recorder.load(bytes, &B::Device::default()).expect("the record can be loaded");
        let module = self.blank.clone().load_record(record);
        let bytes = recorder.record(module.into_record(), ()).expect("the record can be made");
        std::fs::write(self.target(&path), bytes).expect("the file can be written");
    }
}
