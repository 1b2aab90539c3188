package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const argoNamespace = "{apiVersion: v1, kind: Namespace, metadata: {name: argo}}"

// renderArgo writes argo.json: Argo's controller, as its cluster-wide installation has it.
func renderArgo(module, out string) error {
	work, err := os.MkdirTemp("", "controlplane-render-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	// The full definitions say no more to the controller, and take 9 s to be served.
	crds, err := kustomize(module, "manifests/base/crds", "minimal", filepath.Join(work, "argo-crds"))
	if err != nil {
		return err
	}
	objs, err := kustomize(module, "manifests", "cluster-install-no-crds", filepath.Join(work, "argo"))
	if err != nil {
		return err
	}
	return writeJSON(filepath.Join(out, "argo.json"), append(crds, objs...))
}

// argoManifests are Argo's, with the namespace they need and no port for metrics; none without Argo.
func (c *controlPlane) argoManifests() (objects, error) {
	if c.argo == "" {
		return nil, nil
	}
	objs, err := readObjects(filepath.Join(c.argo, "argo.json"))
	for _, config := range only(objs, "ConfigMap") {
		err = errors.Join(err, unstructured.SetNestedStringMap(config.Object, map[string]string{"metricsConfig": "{enabled: false}"}, "data"))
	}
	return append(fromYAML(argoNamespace), objs...), err
}

// startArgo starts the controller; its executor is the argoexec that the kubelet finds in its pods' PATH.
func (c *controlPlane) startArgo() error {
	if c.argo == "" {
		return nil
	}
	// Its health port is fixed and open to all addresses: taken on this one, it does without.
	if taken, err := net.Listen("tcp", "127.0.0.1:6060"); err == nil {
		claims = append(claims, taken)
	}
	env := []string{"LEADER_ELECTION_DISABLE=true", "DEFAULT_REQUEUE_TIME=2s"} // it looks at a workflow every 10 s by default
	return c.parts.start("argo", syscall.SIGKILL, env, filepath.Join(c.argo, "workflow-controller"),
		"--kubeconfig="+c.file("conf", "argo"), "--namespace=argo", "--executor-image=argoexec", "--loglevel=info")
}
