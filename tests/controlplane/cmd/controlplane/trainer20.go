package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Trainer 2.0 has flags instead of a configuration file, always manages its own certificates, and looks
// for them in a fixed folder: what the Secret of its webhooks holds is expected below /tmp.

const certificateSecret = "kubeflow-trainer-webhook-cert"

// startTrainer20 gives the Trainer its own view of /tmp, in a mount namespace (as root, or where a user may
// make user namespaces): the machine's own /tmp stays as it is, and several run side by side.
func (c *controlPlane) startTrainer20() error {
	view := c.file("trainer-tmp")
	program := filepath.Join(view, "trainer-controller-manager")
	certs := filepath.Join("k8s-webhook-server", "serving-certs")
	err := errors.Join(os.MkdirAll(filepath.Join(view, certs), 0o700), os.WriteFile(program, nil, 0o700))
	for from, to := range map[string]string{
		c.file("conf", "trainer"): "kubeconfig",
		c.ca.path("webhook.crt"):  filepath.Join(certs, "tls.crt"),
		c.ca.path("webhook.key"):  filepath.Join(certs, "tls.key"),
	} {
		data, readErr := os.ReadFile(from)
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(view, to), data, 0o600))
	}
	if err != nil {
		return err
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		return fmt.Errorf("Trainer 2.0 needs unshare, of util-linux: %w", err)
	}
	argv := []string{unshare, "--mount"}
	if os.Getuid() != 0 {
		argv = append(argv, "--map-root-user")
	}
	argv = append(argv, "sh", "-c", `mount --bind "$1" "$2" && mount --rbind "$0" /tmp && shift 2 && cd /tmp && exec "$@"`,
		view, filepath.Join(c.trainer, "trainer-controller-manager"), program, "/tmp/trainer-controller-manager",
		fmt.Sprintf("--health-probe-bind-address=127.0.0.1:%d", c.port["trainerHealth"]),
		fmt.Sprintf("--webhook-server-port=%d", c.port["trainerWebhook"]), "--zap-log-level=2")
	return c.parts.start("trainer", syscall.SIGKILL, []string{"TMPDIR=/tmp", "KUBECONFIG=/tmp/kubeconfig"}, argv...)
}

// fillCertificateSecret gives the Trainer certificates for 127.0.0.1: finding valid ones, it makes none itself,
// for its Service, and puts this authority into its webhooks.
func (c *controlPlane) fillCertificateSecret(all objects) error {
	data := map[string]any{}
	for key, file := range map[string]string{
		"ca.crt": "ca.crt", "ca.key": "ca.key", "tls.crt": "webhook.crt", "tls.key": "webhook.key",
	} {
		content, err := os.ReadFile(c.ca.path(file))
		if err != nil {
			return err
		}
		data[key] = b64(content)
	}
	for _, obj := range all {
		if obj.GetKind() == "Secret" && obj.GetName() == certificateSecret {
			if err := unstructured.SetNestedMap(obj.Object, data, "data"); err != nil {
				return err
			}
		}
	}
	return nil
}
