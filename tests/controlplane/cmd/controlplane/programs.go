package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"syscall"
)

// start runs a program that ends at once when this one is killed.
func (c *controlPlane) start(name string, argv ...string) error {
	return c.parts.start(name, syscall.SIGKILL, nil, argv...)
}

func etcdArgs(c *controlPlane) []string {
	client, peer := c.url("etcd"), c.url("etcdPeer")
	return []string{filepath.Join(c.kubernetes, "etcd"),
		"--data-dir=" + c.file("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer}
}

func apiServerArgs(c *controlPlane) []string {
	pki := c.ca.path
	return append([]string{filepath.Join(c.kubernetes, "kube-apiserver"),
		"--etcd-servers=" + c.url("etcd"), "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.port["apiserver"]),
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/24",
		"--tls-cert-file=" + pki("apiserver.crt"), "--tls-private-key-file=" + pki("apiserver.key"),
		"--client-ca-file=" + pki("ca.crt"), "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + pki("service-account.key"), "--service-account-signing-key-file=" + pki("service-account.key"),
		"--kubelet-preferred-address-types=InternalIP", "--kubelet-certificate-authority=" + pki("ca.crt"),
		"--kubelet-client-certificate=" + pki("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + pki("apiserver-kubelet-client.key"),
		// No aggregated API server exists; this only gives the others the ConfigMap they look for.
		"--requestheader-client-ca-file=" + pki("ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--allow-privileged=true", "--profiling=false"}, c.apiserverArgs...)
}

// The controllers a TrainJob needs, plus what a namespace needs to work and to go away again.
var kcmControllers = strings.Join([]string{
	"job-controller", "garbage-collector-controller", "namespace-controller", "serviceaccount-controller",
	"serviceaccount-token-controller", "root-ca-certificate-publisher-controller", "resourcequota-controller",
	"ttl-after-finished-controller", "pod-garbage-collector-controller", "persistentvolume-binder-controller",
	"persistentvolumeclaim-protection-controller", "persistentvolume-protection-controller",
	"cronjob-controller", "clusterrole-aggregation-controller",
}, ",")

func kcmArgs(c *controlPlane) []string {
	return append(delegating(c, "kube-controller-manager", "kcm"),
		"--controllers="+kcmControllers, "--use-service-account-credentials",
		"--service-account-private-key-file="+c.ca.path("service-account.key"), "--root-ca-file="+c.ca.path("ca.crt"),
		"--kube-api-qps=200", "--kube-api-burst=400")
}

func schedulerArgs(c *controlPlane) []string { return delegating(c, "kube-scheduler", "scheduler") }

// delegating are the arguments of a Kubernetes program that asks the API server who may talk to it.
func delegating(c *controlPlane, program, name string) []string {
	conf := c.file("conf", name)
	return []string{filepath.Join(c.kubernetes, program), "--kubeconfig=" + conf,
		"--authentication-kubeconfig=" + conf, "--authorization-kubeconfig=" + conf, "--leader-elect=false",
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.port[name]), "--profiling=false"}
}

func (c *controlPlane) startJobSet() error {
	return c.startController("jobset", "jobset", map[string]any{"internalCertManagement.enable": false})
}

func (c *controlPlane) startTrainer() error {
	if !exists(filepath.Join(c.trainer, "trainer-config.yaml")) {
		return c.startTrainer20()
	}
	return c.startController("trainer", "trainer-controller-manager", map[string]any{"certManagement.enable": false})
}

// startController starts JobSet or the Trainer with its shipped configuration file, changed only
// where it has to be.
func (c *controlPlane) startController(name, program string, set map[string]any) error {
	maps.Copy(set, c.withoutServices(name))
	conf := c.file("conf", name+".yaml")
	if err := changeYAML(filepath.Join(c.trainer, name+"-config.yaml"), conf, set); err != nil {
		return err
	}
	env := []string{"TMPDIR=" + c.file("tmp"), "KUBECONFIG=" + c.file("conf", name)}
	return c.parts.start(name, syscall.SIGKILL, env,
		filepath.Join(c.trainer, program), "--config="+conf, "--zap-log-level=2")
}

// withoutServices is what a process without Services and a leader to elect needs in its configuration.
func (c *controlPlane) withoutServices(name string) map[string]any {
	return map[string]any{
		"leaderElection.leaderElect": false, "metrics.bindAddress": "0",
		"webhook.host": "127.0.0.1", "webhook.port": int64(c.port[name+"Webhook"]),
		"health.healthProbeBindAddress": fmt.Sprintf("127.0.0.1:%d", c.port[name+"Health"]),
	}
}

func (c *controlPlane) startKubelet() error {
	argv := append(append([]string{}, c.kubelet...), "--server", c.server, "--pki", c.ca.dir,
		"--state", c.file("kubelet"), "--port", fmt.Sprint(c.port["kubelet"]))
	if c.argo != "" { // its controller ends containers by commands that it runs in them
		if err := serveExec(c.state, "exec"); err != nil {
			return err
		}
		argv = append(argv, "--exec-socket", "../exec") // seen from the folder of logs, where all parts run
	}
	return c.parts.start("kubelet", syscall.SIGTERM, nil, argv...)
}
