// KServe's CustomResourceDefinitions. None of its programs is built.
module controlplane/versions/kserve

go 1.26.0

require github.com/kserve/kserve v0.16.0
