R=chimera/G2,chimera/G6,chimera/G12,mcfuser/G4,mcfuser/G6,mcfuser/G9,mcfuser/G11,mcfuser/S1,mcfuser/S3,mcfuser/S6,mcfuser/S9
for v in tw_one tw_all; do
  python3 experiments/gpu/run --tilewright build/$v --no-peers --rows $R --candidates 24 --budget 120 --out $OUT/$v.json 2>&1 | tail -40
done
