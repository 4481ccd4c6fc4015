//! Tensor data from numbers, slices and nested arrays.

use super::TensorData;
use crate::Element;
use alloc::vec::Vec;

impl<E: Element> From<E> for TensorData {
    fn from(value: E) -> Self {
        TensorData::new([value].to_vec(), [0usize; 0])
    }
}

impl<E: Element> From<&[E]> for TensorData {
    fn from(elements: &[E]) -> Self {
        TensorData::new(elements.to_vec(), [elements.len()])
    }
}

impl<E: Element> From<Vec<E>> for TensorData {
    fn from(elements: Vec<E>) -> Self {
        let len = elements.len();
        TensorData::new(elements, [len])
    }
}

impl<E: Element, const A: usize> From<[E; A]> for TensorData {
    fn from(elements: [E; A]) -> Self {
        TensorData::new(elements.to_vec(), [A])
    }
}

impl<E: Element, const A: usize, const B: usize> From<[[E; B]; A]> for TensorData {
    fn from(elements: [[E; B]; A]) -> Self {
        TensorData::new(elements.as_flattened().to_vec(), [A, B])
    }
}

impl<E: Element, const A: usize, const B: usize, const C: usize> From<[[[E; C]; B]; A]> for TensorData {
    fn from(elements: [[[E; C]; B]; A]) -> Self {
        TensorData::new(elements.as_flattened().as_flattened().to_vec(), [A, B, C])
    }
}

impl<E: Element, const A: usize, const B: usize, const C: usize, const D: usize> From<[[[[E; D]; C]; B]; A]>
    for TensorData
{
    fn from(elements: [[[[E; D]; C]; B]; A]) -> Self {
        let elements = elements.as_flattened().as_flattened().as_flattened();
        TensorData::new(elements.to_vec(), [A, B, C, D])
    }
}

impl<E: Element, const A: usize, const B: usize, const C: usize, const D: usize, const F: usize>
    From<[[[[[E; F]; D]; C]; B]; A]> for TensorData
{
    fn from(elements: [[[[[E; F]; D]; C]; B]; A]) -> Self {
        let elements = elements.as_flattened().as_flattened().as_flattened().as_flattened();
        TensorData::new(elements.to_vec(), [A, B, C, D, F])
    }
}
