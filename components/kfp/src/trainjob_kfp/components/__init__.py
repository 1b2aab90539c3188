"""Pipeline components, laid out as in kubeflow/pipelines-components."""
