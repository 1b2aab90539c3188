"""Pipeline components in the layout of kubeflow/pipelines-components."""
