//! Images: the guide's data, and folders of images of the chapter on datasets.

use burn::data::data_loader::batcher::Batcher;
use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataset::Dataset;
use burn::data::dataset::vision::{
    Annotation, ImageDatasetItem, ImageFolderDataset, MnistDataset, MnistItem, PixelDepth,
};
use burn::prelude::*;
use std::env;
use std::path::Path;
use std::process::Command;

#[derive(Clone, Default)]
struct MnistBatcher {}

#[derive(Clone, Debug)]
struct MnistBatch<B: Backend> {
    images: Tensor<B, 3>,
    targets: Tensor<B, 1, Int>,
}

impl<B: Backend> Batcher<B, MnistItem, MnistBatch<B>> for MnistBatcher {
    fn batch(&self, items: Vec<MnistItem>, device: &B::Device) -> MnistBatch<B> {
        let images = items
            .iter()
            .map(|item| TensorData::from(item.image).convert::<B::FloatElem>())
            .map(|data| Tensor::<B, 2>::from_data(data, device))
            .map(|tensor| tensor.reshape([1, 28, 28]))
            .map(|tensor| ((tensor / 255) - 0.1307) / 0.3081)
            .collect();
        let targets = items
            .iter()
            .map(|item| Tensor::<B, 1, Int>::from_data([(item.label as i64).elem::<B::IntElem>()], device))
            .collect();
        MnistBatch { images: Tensor::cat(images, 0), targets: Tensor::cat(targets, 0) }
    }
}

fn idx(path: &Path, sizes: &[u32], bytes: impl Iterator<Item = u8>) {
    let mut file = vec![0, 0, 8, sizes.len() as u8];
    sizes.iter().for_each(|size| file.extend(size.to_be_bytes()));
    file.extend(bytes);
    std::fs::write(path, file).unwrap();
}

/// The files of a small MNIST, where a variable of the environment says. The test runs itself with that variable.
#[test]
fn mnist_is_batched() {
    if env::var_os("KILN_DATASETS").is_none() {
        let folder = tempfile::tempdir().unwrap();
        let mnist = folder.path().join("mnist");
        std::fs::create_dir(&mnist).unwrap();
        for (part, count) in [("train", 10), ("t10k", 3)] {
            let pixels = (0..count * 784).map(|n| (n / 784) as u8 * 25);
            idx(&mnist.join(format!("{part}-images-idx3-ubyte")), &[count, 28, 28], pixels);
            idx(&mnist.join(format!("{part}-labels-idx1-ubyte")), &[count], (0..count).map(|n| n as u8));
        }
        let run = |test: &str| {
            let mut command = Command::new(env::current_exe().unwrap());
            command.args(["--exact", test]).env("KILN_DATASETS", folder.path()).output().unwrap()
        };
        let output = run("mnist_is_batched");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    type B = burn::backend::NdArray;
    let loader = DataLoaderBuilder::<B, _, _>::new(MnistBatcher::default())
        .batch_size(4)
        .shuffle(42)
        .num_workers(4)
        .build(MnistDataset::train());
    let mut seen = Vec::new();
    for batch in loader.iter() {
        assert_eq!(batch.images.dims()[1..], [28, 28]);
        let means = batch.images.mean_dims(&[1, 2]).into_data().to_vec::<f32>().unwrap();
        let targets = batch.targets.into_data().iter::<i64>().collect::<Vec<_>>();
        for (mean, &target) in means.iter().zip(&targets) {
            let expected = (target as f32 * 25.0 / 255.0 - 0.1307) / 0.3081;
            assert!((mean - expected).abs() < 1e-4, "{mean} instead of {expected}");
        }
        seen.extend(targets);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..10).collect::<Vec<_>>());
    assert_eq!(MnistDataset::test().len(), 3);
}

fn image(path: &Path, value: u8) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    image::GrayImage::from_pixel(2, 2, image::Luma([value])).save(path).unwrap();
}

/// As programs turn an item into numbers.
fn numbers(item: ImageDatasetItem) -> Vec<u8> {
    item.image.into_iter().map(|pixel: PixelDepth| -> u8 { pixel.try_into().unwrap() }).collect()
}

#[test]
fn folders_of_images() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for (name, value) in [("dog/dog1.png", 1), ("dog/dog2.png", 2), ("cat/cat1.png", 3), ("mask0.png", 1)] {
        image(&root.join(name), value);
    }
    let dataset = ImageFolderDataset::new_classification(root.to_str().unwrap()).unwrap();
    assert_eq!(dataset.len(), 3);
    let first = dataset.get(0).unwrap();
    assert_eq!(first.annotation, Annotation::Label(0));
    assert_eq!(numbers(first), [3; 4]);

    let items = vec![
        (root.join("dog/dog1.png"), vec!["animal".to_string(), "dog".to_string()]),
        (root.join("cat/cat1.png"), vec!["animal".to_string(), "cat".to_string()]),
    ];
    let dataset =
        ImageFolderDataset::new_multilabel_classification_with_items(items, &["animal", "cat", "dog"])
            .unwrap();
    assert_eq!(dataset.get(1).unwrap().annotation, Annotation::MultiLabel(vec![0, 1]));

    let items = vec![(root.join("dog/dog1.png"), root.join("mask0.png"))];
    let dataset = ImageFolderDataset::new_segmentation_with_items(
        items,
        &[
            "cat",        // 0
            "dog",        // 1
            "background", // 2
        ],
    )
    .unwrap();
    match dataset.get(0).unwrap().annotation {
        Annotation::SegmentationMask(mask) => assert_eq!(mask.mask, [1; 4]),
        other => panic!("no mask: {other:?}"),
    }

    let json = r#"{"images": [{"id": 0, "file_name": "dog1.png"}], "categories": [{"id": 0, "name": "dot"}],
        "annotations": [{"id": 0, "image_id": 0, "category_id": 0, "bbox": [3.5, 18.0, 10.5, 10.0], "iscrowd": 0}]}"#;
    std::fs::write(root.join("instances.json"), json).unwrap();
    let dataset =
        ImageFolderDataset::new_coco_detection(root.join("instances.json"), root.join("dog")).unwrap();
    match dataset.get(0).unwrap().annotation {
        Annotation::BoundingBoxes(boxes) => assert_eq!(boxes[0].coords, [3.5, 18.0, 10.5, 10.0]),
        other => panic!("no boxes: {other:?}"),
    }
}
