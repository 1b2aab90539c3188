package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const startLimit = 8 * time.Minute // the steps have limits of their own; this one is for what has none

type options struct {
	state, kubernetes, trainer string
	argo, kueue, kserve        string // empty for none
	kubelet, apiserverArgs     []string
	verbose                    bool
}

// controlPlane is what one "up" has running.
type controlPlane struct {
	options
	parts
	begin   time.Time
	port    map[string]int
	ca      *pki
	server  string
	client  *kubernetes.Clientset
	applier *applier
}

// The default StorageClass: the kubelet plays its provisioner.
const storageClass = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: local-directory
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: controlplane.local/directory
reclaimPolicy: Delete
volumeBindingMode: WaitForFirstConsumer`

// A TrainJob that is only ever created with dryRun, to see that every webhook answers.
const probeTrainJob = `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: probe, namespace: default}
spec: {runtimeRef: {name: torch-distributed}}`

func (o options) up(ctx context.Context) (err error) {
	run, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &controlPlane{options: o, parts: parts{logs: filepath.Join(o.state, "logs"), cancel: cancel}, begin: time.Now()}
	if err := c.prepare(); err != nil {
		return err
	}
	defer os.RemoveAll(c.file("etcd")) // 130 MB; all else of the state folder stays, for its logs
	defer c.shutdown()
	if err := c.startAll(run); err != nil {
		if cause := context.Cause(run); cause != nil && ctx.Err() == nil {
			return cause // "etcd ended, its log says" tells more than "connection refused"
		}
		return err
	}
	fmt.Printf("READY %s\n", c.file("kubeconfig"))
	<-run.Done()
	if ctx.Err() == nil {
		return context.Cause(run) // a part ended by itself
	}
	return nil
}

func (c *controlPlane) startAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"kube-apiserver", c.startAPIServer},
		{"controllers", c.startControllers},
		{"runtimes", c.openForTrainJobs},
	} {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		if c.verbose {
			fmt.Fprintf(os.Stderr, "%6.2fs %s\n", time.Since(c.begin).Seconds(), step.name)
		}
	}
	return writeJSON(c.file("cluster.json"), map[string]any{
		"kubeconfig": c.file("kubeconfig"), "server": c.server, "etcd": c.url("etcd"), "ports": c.port,
		"pids": c.pids(), "pid": os.Getpid(), "seconds": time.Since(c.begin).Seconds(),
	})
}

// prepare makes the state folder, picks ports and issues all certificates and kubeconfigs.
func (c *controlPlane) prepare() (err error) {
	if exists(c.file("logs")) {
		return fmt.Errorf("%s is in use or was used: give a new folder", c.state)
	}
	for _, sub := range []string{"logs", "etcd", "conf"} {
		if err := os.MkdirAll(c.file(sub), 0o755); err != nil {
			return err
		}
	}
	ports := []string{"etcd", "etcdPeer", "apiserver", "kcm", "scheduler", "kubelet"}
	for _, name := range c.webhookServers() {
		ports = append(ports, name+"Webhook", name+"Health")
	}
	if c.port, err = freePorts(ports...); err != nil {
		return err
	}
	c.server = fmt.Sprintf("https://127.0.0.1:%d", c.port["apiserver"])
	if c.ca, err = newPKI(c.file("pki")); err != nil {
		return err
	}
	_, err1 := c.ca.writeKey("service-account")
	return errors.Join(err1, c.ca.server("apiserver"), c.ca.server("kubelet"), c.ca.server("webhook"),
		c.ca.client("process-kubelet", "process-kubelet", "system:masters"),
		c.ca.client("apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters"),
		c.ca.kubeconfig(c.file("kubeconfig"), c.server, "admin", "admin", "system:masters"),
		c.ca.kubeconfig(c.file("conf", "kcm"), c.server, "kcm", "system:kube-controller-manager"),
		c.ca.kubeconfig(c.file("conf", "scheduler"), c.server, "scheduler", "system:kube-scheduler"),
		// The controllers act as their own service accounts, under their shipped RBAC rules.
		c.serviceAccount("jobset", "jobset-system", "jobset-controller-manager"),
		c.serviceAccount("trainer", "kubeflow-system", "kubeflow-trainer-controller-manager"),
		c.serviceAccount("argo", "argo", "argo"),
		c.serviceAccount("kueue", "kueue-system", "kueue-controller-manager"),
		c.webhookCertificates())
}

// webhookServers are the controllers that the API server asks.
func (c *controlPlane) webhookServers() []string {
	names := []string{"jobset", "trainer"}
	if c.kueue != "" {
		names = append(names, "kueue")
	}
	return names
}

func (c *controlPlane) serviceAccount(name, namespace, account string) error {
	return c.ca.kubeconfig(c.file("conf", name), c.server, name, "system:serviceaccount:"+namespace+":"+account,
		"system:serviceaccounts", "system:serviceaccounts:"+namespace)
}

// webhookCertificates puts them where the webhook servers look: $TMPDIR/k8s-webhook-server/serving-certs.
func (c *controlPlane) webhookCertificates() error {
	dir := c.file("tmp", "k8s-webhook-server", "serving-certs")
	err := os.MkdirAll(dir, 0o700)
	for _, ext := range []string{".crt", ".key"} {
		err = errors.Join(err, os.Symlink(c.ca.path("webhook"+ext), filepath.Join(dir, "tls"+ext)))
	}
	return err
}

func (c *controlPlane) startAPIServer(ctx context.Context) error {
	if err := errors.Join(c.start("etcd", etcdArgs(c)...), c.start("apiserver", apiServerArgs(c)...)); err != nil {
		return err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", c.file("kubeconfig"))
	if err != nil {
		return err
	}
	cfg.QPS, cfg.Burst = 500, 500
	if c.client, err = kubernetes.NewForConfig(cfg); err != nil {
		return err
	}
	if c.applier, err = newApplier(cfg, c.client); err != nil {
		return err
	}
	return eventually(ctx, 60*time.Second, func() error { return healthy(ctx, c.client) })
}

// startControllers applies CRDs, roles and webhooks and starts everything that acts by them.
func (c *controlPlane) startControllers(ctx context.Context) error {
	all, err := c.manifests()
	if err != nil {
		return err
	}
	// First: the garbage collector looks for new kinds only every 30 s, so it must find the CRDs.
	if err := c.applier.applyCRDs(ctx, only(all, "CustomResourceDefinition")); err != nil {
		return err
	}
	if err := errors.Join(c.start("kcm", kcmArgs(c)...), c.start("scheduler", schedulerArgs(c)...)); err != nil {
		return err
	}
	// The controllers are processes here, not Deployments.
	rest := append(without(all, "CustomResourceDefinition", "Deployment"), fromYAML(storageClass)...)
	if err := c.applier.apply(ctx, rest); err != nil {
		return err
	}
	if err := errors.Join(c.startJobSet(), c.startTrainer(), c.startArgo(), c.startKueue(), c.startKubelet()); err != nil {
		return err
	}
	for _, name := range c.webhookServers() {
		url := c.url(name+"Health") + "/readyz"
		if err := eventually(ctx, 2*time.Minute, func() error { return answers(ctx, url) }); err != nil {
			return fmt.Errorf("%s: %w; its log ends with:\n%s", name, err, tail(filepath.Join(c.logs, name+".log")))
		}
	}
	return nil
}

// manifests are those of JobSet, the Trainer, Argo, Kueue and KServe, with our addresses and certificates.
func (c *controlPlane) manifests() (all objects, err error) {
	for _, name := range []string{"jobset", "trainer"} {
		objs, err := readObjects(filepath.Join(c.trainer, name+".json"))
		if err != nil {
			return nil, err
		}
		webhooksToURL(objs, c.port[name+"Webhook"], c.ca.pem)
		all = append(all, objs...)
	}
	argo, err := c.argoManifests()
	if err != nil {
		return nil, err
	}
	kueue, err := c.kueueManifests()
	if err != nil {
		return nil, err
	}
	kserve, err := c.kserveManifests()
	if err != nil {
		return nil, err
	}
	return slices.Concat(all, argo, kueue, kserve), c.fillCertificateSecret(all)
}

// openForTrainJobs applies the shipped runtimes and waits until a TrainJob would be accepted and run.
func (c *controlPlane) openForTrainJobs(ctx context.Context) error {
	runtimes, err := readObjects(filepath.Join(c.trainer, "runtimes.json"))
	if err != nil {
		return err
	}
	if err := c.applier.apply(ctx, runtimes); err != nil {
		return err
	}
	return eventually(ctx, 2*time.Minute, func() error {
		return errors.Join(c.applier.apply(ctx, fromYAML(probeTrainJob), "All"), nodeReady(ctx, c.client))
	})
}

func (c *controlPlane) file(names ...string) string {
	return filepath.Join(append([]string{c.state}, names...)...)
}

func (c *controlPlane) url(port string) string {
	return fmt.Sprintf("http://127.0.0.1:%d", c.port[port])
}
