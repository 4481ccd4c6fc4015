//! The dataset.

use super::{Annotation, BoundingBox, ImageDatasetItem, ImageLoaderError, coco, read};
use crate::dataset::Dataset;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

const EXTENSIONS: [&str; 3] = ["jpeg", "jpg", "png"];

/// Images in files, PNG or JPEG, which are read when they are asked for.
#[derive(Clone, Debug)]
pub struct ImageFolderDataset {
    items: Vec<Item>,
    classes: Vec<String>,
}

#[derive(Clone, Debug)]
struct Item {
    path: PathBuf,
    annotation: Known,
}

/// What is known of an image before it is read.
#[derive(Clone, Debug)]
enum Known {
    Label(usize),
    MultiLabel(Vec<usize>),
    BoundingBoxes(Vec<BoundingBox>),
    Mask(PathBuf),
}

impl ImageFolderDataset {
    /// Images of one class each: the name of the folder that an image is in, however deep below `root`. Classes are in the order
    /// of their names, images in that of their paths. Images in `root` itself are of no class, and left out.
    ///
    /// # Errors
    /// When a folder cannot be read, or there is no image.
    pub fn new_classification<P: AsRef<Path>>(root: P) -> Result<Self, ImageLoaderError> {
        Self::new_classification_with(root, &EXTENSIONS)
    }

    /// [`ImageFolderDataset::new_classification`] of the files with some extensions (`png`, `jpg`, `jpeg`).
    ///
    /// # Errors
    /// As there, and when files with an extension are not read at all.
    pub fn new_classification_with<P, S>(root: P, extensions: &[S]) -> Result<Self, ImageLoaderError>
    where
        P: AsRef<Path>,
        S: AsRef<str>,
    {
        let root = root.as_ref();
        let extensions: Vec<String> =
            extensions.iter().map(|extension| extension.as_ref().to_ascii_lowercase()).collect();
        if let Some(other) = extensions.iter().find(|extension| !EXTENSIONS.contains(&extension.as_str())) {
            return Err(ImageLoaderError::Extension(root.join(format!("*.{other}"))));
        }
        let mut images = Vec::new();
        for folder in entries(root)?.into_iter().filter(|path| path.is_dir()) {
            images.extend(images_in(folder, &extensions)?);
        }
        if images.is_empty() {
            return Err(ImageLoaderError::NoImages { root: root.to_owned(), extensions });
        }
        let item = |path: PathBuf| {
            let class = class_of(&path)?;
            Ok((path, class))
        };
        let items = images.into_iter().map(item).collect::<Result<Vec<_>, ImageLoaderError>>()?;
        let classes: BTreeSet<String> = items.iter().map(|(_, class)| class.clone()).collect();
        Self::new_classification_with_items(items, &Vec::from_iter(classes))
    }

    /// Images with one class each, by its name; a class's index is its place in `classes`.
    ///
    /// # Errors
    /// When an image is missing or is of another class.
    pub fn new_classification_with_items<P, S>(
        items: Vec<(P, String)>,
        classes: &[S],
    ) -> Result<Self, ImageLoaderError>
    where
        P: AsRef<Path>,
        S: AsRef<str>,
    {
        let classes = Classes::new(classes)?;
        let item = |(path, label): (P, String)| {
            let path = existing(path.as_ref())?;
            let annotation = Known::Label(classes.index(&path, &label)?);
            Ok(Item { path, annotation })
        };
        let items = items.into_iter().map(item).collect::<Result<_, _>>()?;
        Ok(Self { items, classes: classes.names })
    }

    /// Images with any number of classes each, by their names; a class's index is its place in `classes`.
    ///
    /// # Errors
    /// When an image is missing or is of another class.
    pub fn new_multilabel_classification_with_items<P, S>(
        items: Vec<(P, Vec<String>)>,
        classes: &[S],
    ) -> Result<Self, ImageLoaderError>
    where
        P: AsRef<Path>,
        S: AsRef<str>,
    {
        let classes = Classes::new(classes)?;
        let item = |(path, labels): (P, Vec<String>)| {
            let path = existing(path.as_ref())?;
            let labels = labels.iter().map(|label| classes.index(&path, label)).collect::<Result<_, _>>()?;
            Ok(Item { path, annotation: Known::MultiLabel(labels) })
        };
        let items = items.into_iter().map(item).collect::<Result<_, _>>()?;
        Ok(Self { items, classes: classes.names })
    }

    /// Images, each with the file of its mask: a grayscale image of the same size, whose values are indices of `classes`.
    ///
    /// # Errors
    /// When a file is missing.
    pub fn new_segmentation_with_items<P, S>(
        items: Vec<(P, P)>,
        classes: &[S],
    ) -> Result<Self, ImageLoaderError>
    where
        P: AsRef<Path>,
        S: AsRef<str>,
    {
        let classes = Classes::new(classes)?;
        let item = |(path, mask): (P, P)| {
            let annotation = Known::Mask(existing(mask.as_ref())?);
            Ok(Item { path: existing(path.as_ref())?, annotation })
        };
        let items = items.into_iter().map(item).collect::<Result<_, _>>()?;
        Ok(Self { items, classes: classes.names })
    }

    /// Images and the objects in them as COCO describes them (Lin et al. 2014): a JSON file of annotations and the folder
    /// of the images. Classes are COCO's categories in the order of their ids; images without an object belong to it.
    ///
    /// # Errors
    /// When a file is missing, or the annotations are broken.
    pub fn new_coco_detection<A, I>(annotations_json: A, images_path: I) -> Result<Self, ImageLoaderError>
    where
        A: AsRef<Path>,
        I: AsRef<Path>,
    {
        let coco::Detection { images, classes } = coco::read(annotations_json.as_ref())?;
        let item = |(name, boxes): (PathBuf, Vec<BoundingBox>)| {
            let path = existing(&images_path.as_ref().join(name))?;
            Ok(Item { path, annotation: Known::BoundingBoxes(boxes) })
        };
        let items = images.into_iter().map(item).collect::<Result<_, _>>()?;
        Ok(Self { items, classes: Classes::new(&classes)?.names })
    }

    /// The names of the classes, by their indices.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// An image; nothing beyond the last.
    ///
    /// # Errors
    /// When a file is missing, no image or a broken one, or the mask does not fit.
    pub fn try_get(&self, index: usize) -> Result<Option<ImageDatasetItem>, ImageLoaderError> {
        let Some(Item { path, annotation }) = self.items.get(index) else { return Ok(None) };
        let picture = read::picture(path)?;
        let annotation = match annotation {
            Known::Label(label) => Annotation::Label(*label),
            Known::MultiLabel(labels) => Annotation::MultiLabel(labels.clone()),
            Known::BoundingBoxes(boxes) => Annotation::BoundingBoxes(boxes.clone()),
            Known::Mask(mask) => Annotation::SegmentationMask(read::mask(mask, &picture)?),
        };
        Ok(Some(ImageDatasetItem {
            image: picture.pixels,
            image_width: picture.width,
            image_height: picture.height,
            annotation,
            image_path: path.display().to_string(),
        }))
    }
}

impl Dataset<ImageDatasetItem> for ImageFolderDataset {
    /// [`ImageFolderDataset::try_get`].
    ///
    /// # Panics
    /// Where that is an error, which it names.
    fn get(&self, index: usize) -> Option<ImageDatasetItem> {
        self.try_get(index).unwrap_or_else(|error| panic!("ImageFolderDataset: {error}"))
    }

    fn len(&self) -> usize {
        self.items.len()
    }
}

/// Names of classes and their places.
struct Classes {
    names: Vec<String>,
    indices: HashMap<String, usize>,
}

impl Classes {
    fn new<S: AsRef<str>>(classes: &[S]) -> Result<Self, ImageLoaderError> {
        let names: Vec<String> = classes.iter().map(|class| class.as_ref().to_owned()).collect();
        let mut indices = HashMap::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            if indices.insert(name.clone(), index).is_some() {
                return Err(ImageLoaderError::DuplicateClass(name.clone()));
            }
        }
        Ok(Self { names, indices })
    }

    fn index(&self, path: &Path, label: &str) -> Result<usize, ImageLoaderError> {
        self.indices.get(label).copied().ok_or_else(|| ImageLoaderError::UnknownLabel {
            path: path.to_owned(),
            label: label.to_owned(),
            classes: self.names.clone(),
        })
    }
}

/// The path of a file of images that there is.
fn existing(path: &Path) -> Result<PathBuf, ImageLoaderError> {
    if !extension(path).is_some_and(|extension| EXTENSIONS.contains(&extension.as_str())) {
        return Err(ImageLoaderError::Extension(path.to_owned()));
    }
    fs::metadata(path).map_err(|source| ImageLoaderError::Io { path: path.to_owned(), source })?;
    Ok(path.to_owned())
}

fn extension(path: &Path) -> Option<String> {
    Some(path.extension()?.to_str()?.to_ascii_lowercase())
}

/// What is in a folder, in the order of the names.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, ImageLoaderError> {
    let of_folder = |source| ImageLoaderError::Io { path: folder.to_owned(), source };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(of_folder)? {
        paths.push(entry.map_err(of_folder)?.path());
    }
    paths.sort();
    Ok(paths)
}

/// The name of the folder that an image is in.
fn class_of(image: &Path) -> Result<String, ImageLoaderError> {
    let folder = image.parent().unwrap_or(image);
    let name = folder.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned).ok_or_else(|| ImageLoaderError::ClassName(folder.to_owned()))
}

/// The images in a folder and in those below it, in the order of their paths. Links to folders are not followed, so that there is an
/// end.
fn images_in(folder: PathBuf, extensions: &[String]) -> Result<Vec<PathBuf>, ImageLoaderError> {
    let (mut pending, mut images) = (vec![folder], Vec::new());
    while let Some(folder) = pending.pop() {
        for path in entries(&folder)? {
            if path.is_dir() {
                if !path.is_symlink() {
                    pending.push(path);
                }
            } else if extension(&path).is_some_and(|extension| extensions.contains(&extension)) {
                images.push(path);
            }
        }
    }
    images.sort();
    Ok(images)
}
