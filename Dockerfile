# The harness with everything that its preset `demo` needs; runs are kept in a volume of yours.
#
#   docker build -t nas-harness .
#   docker run --rm -v "$PWD/runs:/project/runs" nas-harness run ablation_calr_ms --preset tiny
#
# GPUs: `docker run --gpus all …` with NVIDIA's container toolkit. Not built here: checked by reading.
FROM python:3.11-slim

RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
COPY . /opt/nas-harness
RUN pip install --no-cache-dir -c /opt/nas-harness/constraints.txt /opt/nas-harness[view,parquet]

# Users' files and runs; the folder's own methods, spaces and studies are found in it.
WORKDIR /project
ENV OMP_NUM_THREADS=1
ENTRYPOINT ["harness"]
CMD ["--help"]
