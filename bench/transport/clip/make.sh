#!/bin/sh
# Makes the clip of `qfabric metp bench` and prints the frames' sizes: `sh make.sh > h264.csv`.
#
# 24 s of 1080p H.264 at 25 frames a second, closed groups of 12 pictures with two B frames between others: a texture
# panned by whole pixels, a test pattern that moves over it, a zoom, a cellular automaton. Two runs give the same
# bytes. It takes some minutes; the clip is removed at the end unless CLIP names its file.
set -eu

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
clip=${CLIP:-$folder/clip.mp4}

ffmpeg -v error -nostdin -f lavfi \
    -i "mandelbrot=s=2880x1620:start_scale=0.02:start_x=-0.743643887037151:start_y=-0.131825904205330" \
    -vf "noise=alls=10:all_seed=42,format=yuv420p" -frames:v 1 "$folder/texture.png"

ffmpeg -v error -nostdin -y -loop 1 -framerate 25 -t 6 -i "$folder/texture.png" \
    -f lavfi -t 6 -i testsrc2=s=1920x1080:r=25 \
    -f lavfi -t 6 -i "mandelbrot=s=640x360:r=25:start_scale=1.5:end_scale=0.05:end_pts=150:start_x=-0.743643887037151:start_y=-0.131825904205330" \
    -f lavfi -t 6 -i "life=s=320x180:r=25:seed=7:mold=10:ratio=0.15:death_color=#203040:life_color=#e0d080:mold_color=#604020" \
    -filter_complex "
        [0]split[t0][t1];
        [t0]crop=1920:1080:x='2*trunc((iw-ow)/4*(1+sin(n/40)))':y='2*trunc((ih-oh)/4*(1+cos(n/55)))',format=yuv420p,setsar=1[a];
        [t1]crop=1920:1080:0:0[back];[1]scale=960:540[front];
        [back][front]overlay=x='(W-w)/2+(W/4)*sin(n/15)':y='(H-h)/2',format=yuv420p,setsar=1[b];
        [2]scale=1920:1080:flags=bicubic,format=yuv420p,setsar=1[c];
        [3]scale=1920:1080:flags=bilinear,format=yuv420p,setsar=1[d];
        [a][b][c][d]concat=n=4:v=1:a=0[v]" \
    -map "[v]" -r 25 -c:v libx264 -preset veryfast -threads 1 -pix_fmt yuv420p -crf 18 \
    -x264-params keyint=12:min-keyint=12:scenecut=0:open-gop=0:bframes=2:b-adapt=0:b-pyramid=none:weightp=0:vbv-maxrate=16000:vbv-bufsize=2400 \
    -fflags +bitexact -flags:v +bitexact "$clip"

# Frames in the order of the file, which is the order of sending: picture type and bytes.
ffprobe -v error -select_streams v:0 -show_entries frame=pkt_pos,pkt_size,pict_type -of compact=print_section=0 "$clip" |
    sed -n 's/pkt_pos=\([0-9]*\)|pkt_size=\([0-9]*\)|pict_type=\([IPB]\).*/\1 \3,\2/p' | sort -n | cut -d' ' -f2
