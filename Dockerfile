# syntax=docker/dockerfile:1
# The environment of `make setup`, in two stages: the compiler for Horovod stays in the first.
#
#     docker build -t farandole .
#     docker run --rm -it --shm-size=2g farandole         # a shell with farandole in it
#     docker run --rm -it --shm-size=2g -p 127.0.0.1:8888:8888 farandole jupyter lab --ip=0.0.0.0 --notebook-dir=.
#
# torch comes with its libraries for CUDA. An image without them has a third of the size:
#     docker build -t farandole --build-arg PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu .

FROM python:3.12-slim-bookworm AS build
ARG PIP_EXTRA_INDEX_URL
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /home/learner/farandole
# What the environment depends on, before the rest: a change of the code does not install it anew.
COPY pyproject.toml setup.py constraints.txt README.md LICENSE MANIFEST.in Makefile ./
COPY tools/horovod_wheel.py tools/
COPY reference reference
RUN make setup && rm -rf /root/.cache

FROM python:3.12-slim-bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends fonts-noto-cjk make openssh-client \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 learner
WORKDIR /home/learner/farandole
COPY --from=build --chown=learner:learner /home/learner/farandole/.venv .venv
COPY --chown=learner:learner . .
USER learner
ENV PATH=/home/learner/farandole/.venv/bin:$PATH
CMD ["bash"]
