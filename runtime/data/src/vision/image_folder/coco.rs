//! COCO's annotations of objects.

use super::{BoundingBox, ImageLoaderError};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::BufReader;
use std::path::{Component, Path, PathBuf};

/// The part of a file that is read.
#[derive(Deserialize)]
struct Annotations {
    images: Vec<Image>,
    categories: Vec<Category>,
    annotations: Vec<Object>,
}

#[derive(Deserialize)]
struct Image {
    id: u64,
    file_name: String,
}

#[derive(Deserialize)]
struct Category {
    id: u64,
    name: String,
}

#[derive(Deserialize)]
struct Object {
    image_id: u64,
    category_id: u64,
    bbox: [f32; 4],
}

/// Images, in the file's order, and what is in them.
pub(super) struct Detection {
    pub(super) images: Vec<(PathBuf, Vec<BoundingBox>)>,
    /// In the order of their ids.
    pub(super) classes: Vec<String>,
}

pub(super) fn read(path: &Path) -> Result<Detection, ImageLoaderError> {
    let file = File::open(path).map_err(|source| ImageLoaderError::Io { path: path.to_owned(), source })?;
    let wrong = |reason: String| ImageLoaderError::Annotations { path: path.to_owned(), reason };
    let annotations: Annotations = serde_json::from_reader(BufReader::new(file))
        .map_err(|error| wrong(format!("these are no annotations as COCO has them: {error}")))?;
    detection(annotations).map_err(wrong)
}

fn detection(annotations: Annotations) -> Result<Detection, String> {
    let mut categories = BTreeMap::new();
    for Category { id, name } in annotations.categories {
        if categories.insert(id, name).is_some() {
            return Err(format!("two categories have the id {id}"));
        }
    }
    let labels: HashMap<u64, usize> = categories.keys().copied().zip(0..).collect();
    let mut places = HashMap::new();
    let mut images = Vec::new();
    for Image { id, file_name } in annotations.images {
        if places.insert(id, images.len()).is_some() {
            return Err(format!("two images have the id {id}"));
        }
        let name = PathBuf::from(&file_name);
        let inside = name.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !inside || file_name.is_empty() {
            return Err(format!("image {id} is not in the folder of images, but {file_name:?}"));
        }
        images.push((name, Vec::new()));
    }
    for (n, Object { image_id, category_id, bbox }) in annotations.annotations.into_iter().enumerate() {
        let label = labels.get(&category_id);
        let &label = label
            .ok_or_else(|| format!("annotation {n} is of category {category_id}, which there is not"))?;
        let place = places.get(&image_id).and_then(|&place| images.get_mut(place));
        let (_, boxes) =
            place.ok_or_else(|| format!("annotation {n} is of image {image_id}, which there is not"))?;
        let [_, _, width, height] = bbox;
        if !bbox.iter().all(|x| x.is_finite()) || width < 0.0 || height < 0.0 {
            return Err(format!("annotation {n} has no box, but {bbox:?}"));
        }
        boxes.push(BoundingBox { coords: bbox, label });
    }
    Ok(Detection { images, classes: categories.into_values().collect() })
}
