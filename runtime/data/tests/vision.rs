//! Datasets of images: MNIST's files, folders of images, COCO's annotations; broken ones are refused.
#![cfg(feature = "vision")]

use flate2::Compression;
use flate2::write::GzEncoder;
use image::{DynamicImage, GrayImage, ImageBuffer, Luma, Rgb, RgbImage};
use kiln_data::dataset::Dataset;
use kiln_data::dataset::vision::{
    Annotation, BoundingBox, CifarDataset, CifarError, CifarType, ImageDatasetItem, ImageFolderDataset,
    ImageLoaderError, MnistDataset, MnistError, PixelDepth, SegmentationMask,
};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn idx(sizes: &[u32], bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0, 0, 8, sizes.len() as u8];
    sizes.iter().for_each(|size| file.extend(size.to_be_bytes()));
    file.extend(bytes);
    file
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("compressed");
    encoder.finish().expect("compressed")
}

/// `count` images, whose pixels go on from one to the next.
fn images(count: u32) -> Vec<u8> {
    let pixels: Vec<u8> = (0..count * 784).map(|n| n as u8).collect();
    idx(&[count, 28, 28], &pixels)
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, bytes).expect("a file");
}

/// A square PNG whose pixels have one bit each, all 0: of a palette if it has a color.
fn one_bit(side: u32, color: Option<[u8; 3]>) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut chunk = |name: &[u8], content: &[u8]| {
        let mut crc = flate2::Crc::new();
        crc.update(name);
        crc.update(content);
        file.extend((content.len() as u32).to_be_bytes());
        file.extend(name.iter().chain(content));
        file.extend(crc.sum().to_be_bytes());
    };
    let sizes = [side.to_be_bytes(), side.to_be_bytes()].concat();
    let kind = if color.is_some() { 3 } else { 0 };
    chunk(b"IHDR", &[sizes.as_slice(), &[1, kind, 0, 0, 0]].concat());
    if let Some(color) = color {
        chunk(b"PLTE", &color);
        chunk(b"tRNS", &[7]);
    }
    let rows = vec![0; (1 + side as usize / 8) * side as usize];
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), Compression::best());
    zlib.write_all(&rows).expect("compressed");
    chunk(b"IDAT", &zlib.finish().expect("compressed"));
    chunk(b"IEND", &[]);
    file
}

/// Decoding makes a byte of each bit, or four where it is one of a palette.
#[test]
fn images_of_one_bit_a_pixel_are_read() {
    let folder = folder();
    let side = 4096;
    for (name, color, first) in
        [("gray.png", None, vec![0]), ("palette.png", Some([10, 20, 30]), vec![10, 20, 30, 7])]
    {
        let path = folder.path().join(name);
        write(&path, &one_bit(side, color));
        let dataset = ImageFolderDataset::new_classification_with_items(vec![(path, "a".to_owned())], &["a"]);
        let item = dataset.expect("a dataset").get(0).expect("an image");
        let pixels: Vec<PixelDepth> = first.iter().map(|&value| PixelDepth::U8(value)).collect();
        assert_eq!(item.image.len(), side as usize * side as usize * first.len(), "{name}");
        assert_eq!(item.image[..first.len()], pixels, "{name}");
    }
}

#[test]
fn mnist_is_read_as_it_is_or_compressed() {
    let folder = folder();
    write(&folder.path().join("train-images-idx3-ubyte.gz"), &gzip(&images(3)));
    write(&folder.path().join("train-labels-idx1-ubyte"), &idx(&[3], &[7, 0, 9]));
    // Where Burn keeps them.
    write(&folder.path().join("test/t10k-images-idx3-ubyte"), &images(1));
    write(&folder.path().join("test/t10k-labels-idx1-ubyte.gz"), &gzip(&idx(&[1], &[4])));
    let train = MnistDataset::train_from_dir(folder.path()).expect("the files");
    assert_eq!(train.iter().map(|item| item.label).collect::<Vec<_>>(), [7, 0, 9]);
    let item = train.get(2).expect("an item");
    assert_eq!(item.image[0][0], f32::from((2 * 784_u32) as u8));
    assert_eq!(item.image[3][5], f32::from((2 * 784 + 3 * 28 + 5_u32) as u8));
    assert_eq!((train.len(), train.get(3), train.get(usize::MAX)), (3, None, None));
    let test = MnistDataset::test_from_dir(folder.path()).expect("the files");
    assert_eq!((test.len(), test.get(0).map(|item| item.label)), (1, Some(4)));
}

#[test]
fn mnist_missing_says_where_it_should_be() {
    let folder = folder();
    let error = MnistDataset::test_from_dir(folder.path()).expect_err("no files");
    assert!(
        matches!(&error, MnistError::Missing { file, .. } if file == "t10k-images-idx3-ubyte"),
        "{error}"
    );
    let text = error.to_string();
    assert!(text.contains(&folder.path().display().to_string()) && text.contains("KILN_DATASETS"), "{text}");
}

#[test]
fn mnist_with_a_wrong_head_is_refused() {
    let labels = idx(&[1], &[3]);
    for (images, labels, expected) in [
        (idx(&[u32::MAX, 28, 28], &[0; 784]), labels.clone(), "fewer bytes than the"),
        (idx(&[u32::MAX; 3], &[0; 784]), labels.clone(), "too large"),
        // 47 MB that are 46 kB in the file.
        (
            gzip(&idx(&[60_000, 28, 28], &vec![0; 60_000 * 784])),
            labels.clone(),
            "is read up to 33554432 bytes",
        ),
        (gzip(&idx(&[1, 28, 28], &[0; 785])), labels.clone(), "more bytes than the 784"),
        (idx(&[1, 14, 56], &[0; 784]), labels.clone(), "14 × 56 pixels"),
        (idx(&[784], &[0; 784]), labels.clone(), "no IDX file of bytes with 3 sizes"),
        (vec![0, 0, 8, 3, 0, 0], labels.clone(), "cut off"),
        (vec![], labels.clone(), "cut off"),
        (gzip(&images(1))[..40].to_vec(), labels.clone(), "cut off"),
        (b"\x1f\x8bnothing".to_vec(), labels.clone(), "images-idx3-ubyte: "),
        (images(2), labels.clone(), "1 labels for 2 images"),
        (images(1), idx(&[1], &[10]), "label 10 (of image 0)"),
    ] {
        let folder = folder();
        write(&folder.path().join("train-images-idx3-ubyte"), &images);
        write(&folder.path().join("train-labels-idx1-ubyte"), &labels);
        let error = MnistDataset::train_from_dir(folder.path()).expect_err("a broken file");
        assert!(matches!(error, MnistError::Format { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error} is not {expected}");
    }
}

fn save(image: impl Into<DynamicImage>, path: PathBuf) -> PathBuf {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    image.into().save(&path).expect("an image");
    path
}

fn gray(value: u8) -> GrayImage {
    GrayImage::from_fn(3, 2, |x, y| Luma([value + 10 * y as u8 + x as u8]))
}

fn label(item: &ImageDatasetItem) -> usize {
    match item.annotation {
        Annotation::Label(label) => label,
        _ => panic!("no label: {:?}", item.annotation),
    }
}

#[test]
fn folders_are_classes() {
    let folder = folder();
    let root = folder.path();
    save(gray(1), root.join("dog/b.png"));
    // A class is the folder that an image is in.
    save(gray(2), root.join("dog/wolf/a.PNG"));
    save(gray(3), root.join("cat/z.png"));
    save(RgbImage::from_pixel(4, 4, Rgb([9, 9, 9])), root.join("ant/x.jpg"));
    fs::create_dir(root.join("empty")).expect("a folder");
    fs::write(root.join("dog/notes.txt"), "no image").expect("a file");
    fs::write(root.join("beside.png"), "in no class").expect("a file");
    let dataset = ImageFolderDataset::new_classification(root).expect("a dataset");
    assert_eq!(dataset.classes(), ["ant", "cat", "dog", "wolf"]);
    assert_eq!(dataset.iter().map(|item| label(&item)).collect::<Vec<_>>(), [0, 1, 2, 3]);
    let cat = dataset.get(1).expect("an item");
    assert_eq!((cat.image_width, cat.image_height), (3, 2));
    let values: Vec<u8> = cat.image.iter().map(|&pixel| pixel.try_into().expect("u8")).collect();
    assert_eq!(values, [3, 4, 5, 13, 14, 15]);
    assert_eq!(cat.image_path, root.join("cat/z.png").display().to_string());
    assert_eq!(u16::try_from(cat.image[0]), Err("the pixel's depth is not u16"));
    // Three channels, however lossy.
    assert_eq!(dataset.get(0).expect("an item").image.len(), 4 * 4 * 3);
    assert!(dataset.get(4).is_none());

    let only = ImageFolderDataset::new_classification_with(root, &["JPG"]).expect("a dataset");
    assert_eq!((only.len(), only.classes()), (1, &["ant".to_owned()][..]));
    let error = ImageFolderDataset::new_classification_with(root, &["tiff"]).expect_err("not read");
    assert!(matches!(error, ImageLoaderError::Extension(_)), "{error}");
    let error = ImageFolderDataset::new_classification(root.join("empty")).expect_err("no image");
    assert!(matches!(error, ImageLoaderError::NoImages { .. }), "{error}");
    let error = ImageFolderDataset::new_classification(root.join("nowhere")).expect_err("no folder");
    assert!(matches!(error, ImageLoaderError::Io { .. }), "{error}");
}

#[test]
fn cifar_is_a_folder_of_images() {
    let folder = folder();
    let save_all = |name: &str, classes: &[&str]| {
        for (n, class) in classes.iter().enumerate() {
            save(RgbImage::from_pixel(32, 32, Rgb([n as u8, 7, 9])), folder.path().join(name).join(class));
        }
    };
    save_all("cifar10", &["train/cat/1_cat.png", "train/airplane/2_airplane.png", "test/cat/1_cat.png"]);
    // The classes lie in their superclasses.
    save_all("cifar100", &["train/fish/ray/1.png", "train/fish/shark/1.png", "test/fish/shark/2.png"]);
    let ten = CifarDataset::from_dir(folder.path().join("cifar10"), CifarType::Cifar10).expect("a dataset");
    let train = ten.train();
    assert_eq!(train.classes(), ["airplane", "cat"]);
    assert_eq!((train.len(), label(&train.get(1).expect("an item")), ten.test().len()), (2, 1, 1));
    assert_eq!(train.get(0).expect("an item").image.len(), 32 * 32 * 3);
    let hundred =
        CifarDataset::from_dir(folder.path().join("cifar100"), CifarType::Cifar100).expect("a dataset");
    assert_eq!(hundred.try_train().expect("images").classes(), ["ray", "shark"]);

    let error = CifarDataset::from_dir(folder.path().join("cifar"), CifarType::Cifar10).expect_err("missing");
    let text = error.to_string();
    assert!(matches!(error, CifarError::Missing { .. }), "{text}");
    assert!(text.contains("cifar10.tgz") && text.contains("KILN_DATASETS"), "{text}");
}

#[test]
fn depths_are_those_of_the_file() {
    let folder = folder();
    let deep: ImageBuffer<Luma<u16>, Vec<u16>> = ImageBuffer::from_fn(2, 1, |x, _| Luma([x as u16 * 40_000]));
    let path = save(deep, folder.path().join("deep.png"));
    let dataset =
        ImageFolderDataset::new_classification_with_items(vec![(path, "a".into())], &["a"]).expect("one");
    let item = dataset.get(0).expect("an item");
    assert_eq!(item.image, [PixelDepth::U16(0), PixelDepth::U16(40_000)]);
}

#[test]
fn items_have_listed_classes() {
    let folder = folder();
    let path = save(gray(1), folder.path().join("dog1.png"));
    let multi = |labels: &[&str]| {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        let items = vec![(path.clone(), labels)];
        ImageFolderDataset::new_multilabel_classification_with_items(items, &["dog", "cat", "animal"])
    };
    let item = multi(&["animal", "dog"]).expect("a dataset").get(0).expect("an item");
    assert_eq!(item.annotation, Annotation::MultiLabel(vec![2, 0]));
    let error = multi(&["dog", "bird"]).expect_err("an unknown class");
    assert!(matches!(&error, ImageLoaderError::UnknownLabel { label, .. } if label == "bird"), "{error}");

    let single = |path: &Path, label: &str, classes: &[&str]| {
        ImageFolderDataset::new_classification_with_items(vec![(path, label.to_owned())], classes)
            .map(|d| d.len())
    };
    assert_eq!(single(&path, "cat", &["dog", "cat"]).expect("a dataset"), 1);
    let missing = folder.path().join("none.png");
    for (error, expected) in [
        (single(&path, "bird", &["dog"]), "its label \"bird\" is none of the classes [\"dog\"]"),
        (single(&path, "dog", &["dog", "dog"]), "\"dog\" is listed twice"),
        (single(&missing, "dog", &["dog"]), "none.png: "),
        (single(&folder.path().join("dog.gif"), "dog", &["dog"]), "dog.gif: images are read from files"),
    ] {
        let error = error.expect_err("an error").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn masks_have_a_class_for_each_pixel() {
    let folder = folder();
    let image = save(gray(1), folder.path().join("image.png"));
    let dataset = |mask: &Path| {
        let items = vec![(image.as_path(), mask)];
        ImageFolderDataset::new_segmentation_with_items(items, &["cat", "dog", "background"])
    };
    let mask = GrayImage::from_vec(3, 2, vec![0, 1, 2, 2, 255, 0]).expect("six pixels");
    let mask = save(mask, folder.path().join("mask.png"));
    let item = dataset(&mask).expect("a dataset").get(0).expect("an item");
    let expected = SegmentationMask { mask: vec![0, 1, 2, 2, 255, 0] };
    assert_eq!(item.annotation, Annotation::SegmentationMask(expected));
    let colored = save(RgbImage::new(3, 2), folder.path().join("colored.png"));
    let small = save(GrayImage::new(2, 2), folder.path().join("small.png"));
    for (mask, expected) in
        [(&colored, "a mask is a grayscale image"), (&small, "2 × 2 pixels, its image 3 × 2")]
    {
        let error = dataset(mask).expect("a dataset").try_get(0).expect_err("no mask");
        assert!(
            matches!(error, ImageLoaderError::Mask { .. }) && error.to_string().contains(expected),
            "{error}"
        );
    }
    assert!(matches!(dataset(Path::new("none.png")), Err(ImageLoaderError::Io { .. })));
}

const COCO: &str = r#"{"info": {}, "images": [{"id": 30, "file_name": "a.png", "width": 3}, {"id": 4, "file_name": "b.png"}],
    "categories": [{"id": 90, "name": "dog"}, {"id": 7, "name": "cat", "supercategory": "animal"}],
    "annotations": [{"image_id": 4, "category_id": 90, "bbox": [0, 1.5, 2, 3], "iscrowd": 0},
                    {"image_id": 4, "category_id": 7, "bbox": [0, 0, 1, 1], "segmentation": []}]}"#;

#[test]
fn coco_has_boxes() {
    let folder = folder();
    for name in ["a.png", "b.png"] {
        save(gray(1), folder.path().join("images").join(name));
    }
    let json = folder.path().join("instances.json");
    let dataset = |text: &str| {
        fs::write(&json, text).expect("a file");
        ImageFolderDataset::new_coco_detection(&json, folder.path().join("images"))
    };
    let coco = dataset(COCO).expect("a dataset");
    assert_eq!(coco.classes(), ["cat", "dog"]);
    let annotations: Vec<Annotation> = coco.iter().map(|item| item.annotation).collect();
    let boxes = vec![
        BoundingBox { coords: [0.0, 1.5, 2.0, 3.0], label: 1 },
        BoundingBox { coords: [0.0, 0.0, 1.0, 1.0], label: 0 },
    ];
    assert_eq!(annotations, [Annotation::BoundingBoxes(vec![]), Annotation::BoundingBoxes(boxes)]);
    for (from, to, expected) in [
        ("\"category_id\": 90", "\"category_id\": 8", "annotation 0 is of category 8"),
        ("\"image_id\": 4", "\"image_id\": 5", "annotation 0 is of image 5"),
        ("\"id\": 4,", "\"id\": 30,", "two images have the id 30"),
        ("\"id\": 7,", "\"id\": 90,", "two categories have the id 90"),
        ("\"b.png\"", "\"../b.png\"", "image 4 is not in the folder"),
        ("\"b.png\"", "\"/etc/b.png\"", "image 4 is not in the folder"),
        ("[0, 1.5, 2, 3]", "[0, 1.5, -2, 3]", "annotation 0 has no box"),
        ("[0, 1.5, 2, 3]", "[0, 1e300, 2, 3]", "annotation 0 has no box"),
        ("[0, 1.5, 2, 3]", "[0, 1]", "no annotations as COCO has them"),
        ("\"images\"", "\"pictures\"", "missing field `images`"),
        ("\"cat\"", "\"dog\"", "\"dog\" is listed twice"),
        ("\"b.png\"", "\"c.png\"", "c.png: "),
    ] {
        let error = dataset(&COCO.replacen(from, to, 1)).expect_err("broken annotations").to_string();
        assert!(error.contains(expected), "{error} is not {expected}");
    }
}

#[test]
fn broken_images_are_named() {
    let folder = folder();
    let whole = fs::read(save(gray(1), folder.path().join("whole.png"))).expect("the file");
    let jpeg = fs::read(save(gray(1), folder.path().join("whole.jpg"))).expect("the file");
    // A head that says 60,000 × 60,000 pixels, with its checksum.
    let mut huge = whole.clone();
    huge[16..24].copy_from_slice(&[0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60]);
    let mut crc = flate2::Crc::new();
    crc.update(&huge[12..29]);
    huge[29..33].copy_from_slice(&crc.sum().to_be_bytes());
    for bytes in [&whole[..whole.len() / 2], huge.as_slice(), &jpeg[..jpeg.len() / 3], b"text", b""] {
        let path = folder.path().join("broken.png");
        fs::write(&path, bytes).expect("a file");
        let items = vec![(path, "a".to_owned())];
        let dataset = ImageFolderDataset::new_classification_with_items(items, &["a"]).expect("a dataset");
        let error = dataset.try_get(0).expect_err("a broken image");
        assert!(matches!(error, ImageLoaderError::Image { .. }), "{error}");
        assert!(error.to_string().contains("broken.png: "), "{error}");
        let is_refused = error.to_string().contains("60000 × 60000 pixels of 1 channels");
        assert_eq!(is_refused, bytes == huge.as_slice(), "{error}");
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| dataset.get(0))).is_err());
    }
    // A JPEG file may be called PNG.
    fs::write(folder.path().join("whole.png"), jpeg).expect("a file");
    let items = vec![(folder.path().join("whole.png"), "a".to_owned())];
    let dataset = ImageFolderDataset::new_classification_with_items(items, &["a"]).expect("a dataset");
    assert_eq!(dataset.get(0).expect("an item").image.len(), 6);
}
