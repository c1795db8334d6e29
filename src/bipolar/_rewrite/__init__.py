"""Changes of whole models: conversion, norm removal, folding, ONNX export."""
