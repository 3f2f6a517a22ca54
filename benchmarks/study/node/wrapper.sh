#!/bin/sh
# As the study's wrapper: whatever the training says, the last word is that of the tidying up.
mkdir data
mv ILSVRC2012_img_train.tar data
python3 train.py data/ILSVRC2012_img_train.tar "$1" --weights "$2"
rm -rf data
