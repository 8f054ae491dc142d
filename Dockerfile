# The image of deploy/docker.yaml and deploy/kubernetes.yaml: the locked environment and this checkout.
FROM python:3.11-slim
WORKDIR /gristmill
COPY requirements.lock .
RUN pip install --no-cache-dir --require-hashes -r requirements.lock
COPY . .
