package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

const kueueConfig = "config/components/manager/controller_manager_config.yaml"

// renderKueue writes kueue.json: Kueue's definitions, roles and webhooks, and its configuration file.
func renderKueue(module, out string) error {
	work, err := os.MkdirTemp("", "controlplane-render-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	objs, err := kustomize(module, "config", "default", work)
	if err != nil {
		return err
	}
	config, err := os.ReadFile(filepath.Join(module, kueueConfig))
	return errors.Join(err, os.WriteFile(filepath.Join(out, "kueue-config.yaml"), config, 0o644),
		writeJSON(filepath.Join(out, "kueue.json"), objs))
}

// kueueManifests are Kueue's, without the API of its visibility server, which does not run here; none without Kueue.
func (c *controlPlane) kueueManifests() (objects, error) {
	if c.kueue == "" {
		return nil, nil
	}
	objs, err := readObjects(filepath.Join(c.kueue, "kueue.json"))
	webhooksToURL(objs, c.port["kueueWebhook"], c.ca.pem)
	return without(objs, "APIService"), err
}

// startKueue starts it with its shipped configuration file, changed as those of the other controllers, for Jobs,
// JobSets and TrainJobs.
func (c *controlPlane) startKueue() error {
	if c.kueue == "" {
		return nil
	}
	conf := c.file("conf", "kueue.yaml")
	set := c.withoutServices("kueue")
	set["internalCertManagement.enable"], set["featureGates.VisibilityOnDemand"] = false, false
	set["webhook.certDir"] = c.file("tmp", "k8s-webhook-server", "serving-certs")
	set["integrations.frameworks"] = []any{"batch/job", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob"}
	if err := changeYAML(filepath.Join(c.kueue, "kueue-config.yaml"), conf, set); err != nil {
		return err
	}
	enter, err := c.ownEtc()
	if err != nil {
		return err
	}
	env := []string{"TMPDIR=" + c.file("tmp"), "KUBECONFIG=" + c.file("conf", "kueue")}
	return c.parts.start("kueue", syscall.SIGKILL, env,
		append(enter, filepath.Join(c.kueue, "kueue"), "--config="+conf, "--zap-log-level=2")...)
}

// ownEtc is the beginning of a command that gives Kueue its own view of /etc: with certificates from outside it reads
// those of its metrics from a fixed folder there, also when it serves none.
func (c *controlPlane) ownEtc() ([]string, error) {
	certs := c.file("kueue-etc", "kueue", "metrics", "certs")
	err := os.MkdirAll(certs, 0o755)
	for _, ext := range []string{".crt", ".key"} {
		err = errors.Join(err, os.Symlink(c.ca.path("webhook"+ext), filepath.Join(certs, "tls"+ext)))
	}
	if err != nil {
		return nil, err
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		return nil, fmt.Errorf("Kueue needs unshare, of util-linux: %w", err)
	}
	enter := []string{unshare, "--mount"}
	if os.Getuid() != 0 {
		enter = append(enter, "--map-root-user")
	}
	return append(enter, "sh", "-c", `mount -t overlay overlay -o "lowerdir=$0:/etc" /etc && exec "$@"`, c.file("kueue-etc")), nil
}
