// Command controlplane runs a real Kubernetes control plane with the real JobSet and Kubeflow
// Trainer controllers as ordinary processes on 127.0.0.1, for tests.
//
//	controlplane render --jobset DIR --trainer DIR --out DIR          at build time: the manifests the modules ship
//	controlplane render --argo DIR --out DIR                          the same for Argo; --kueue and --kserve for these
//	controlplane build DIR                                            what a kustomization makes, as kubectl kustomize
//	controlplane up --state DIR --kubernetes DIR --trainer DIR [--argo DIR] -- KUBELET...   start everything, print READY, stay
//
// The upstream programs are their own unchanged main packages. This command only makes certificates,
// starts the programs in order, applies the manifests and stops everything again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// Children die with the thread that started them (Pdeathsig): keep main on its thread for ever.
func init() { runtime.LockOSThread() }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, stop, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, stop func(), args []string) error {
	verb := ""
	if len(args) > 0 {
		verb, args = args[0], args[1:]
	}
	switch verb {
	case "render":
		return renderCommand(args)
	case "up":
		return upCommand(ctx, stop, args)
	case "build":
		if len(args) == 1 {
			return build(args[0])
		}
	}
	return errors.New("usage: controlplane render|up [flags] (-h lists them), controlplane build DIR")
}

func renderCommand(args []string) error {
	fs := flag.NewFlagSet("render", flag.ExitOnError)
	jobset := fs.String("jobset", "", "folder of JobSet's module")
	trainer := fs.String("trainer", "", "folder of the Trainer's module")
	argo := fs.String("argo", "", "folder of Argo's module, instead")
	kueue := fs.String("kueue", "", "folder of Kueue's module, instead")
	kserve := fs.String("kserve", "", "folder of KServe's module, instead")
	out := fs.String("out", "", "folder to write to")
	_ = fs.Parse(args)
	if *argo != "" {
		return renderArgo(*argo, *out)
	}
	if *kueue != "" {
		return renderKueue(*kueue, *out)
	}
	if *kserve != "" {
		return renderKServe(*kserve, *out)
	}
	return render(*jobset, *trainer, *out)
}

func upCommand(ctx context.Context, stop func(), args []string) error {
	var o options
	fs := flag.NewFlagSet("up", flag.ExitOnError)
	fs.StringVar(&o.state, "state", "", "new folder for certificates, etcd's data, logs and pods' files")
	fs.StringVar(&o.kubernetes, "kubernetes", "", "folder of etcd and Kubernetes' programs")
	fs.StringVar(&o.trainer, "trainer", "", "folder of JobSet's and the Trainer's programs and manifests")
	fs.StringVar(&o.argo, "argo", "", "folder of Argo's programs and manifests; the kubelet must isolate")
	fs.StringVar(&o.kueue, "kueue", "", "folder of Kueue's program and manifests")
	fs.StringVar(&o.kserve, "kserve", "", "folder of KServe's definitions")
	fs.Func("apiserver-arg", "one more kube-apiserver argument (again and again)", func(arg string) error {
		o.apiserverArgs = append(o.apiserverArgs, arg)
		return nil
	})
	parent := fs.Int("parent", 0, "process whose end is the order to stop; 0 for none")
	fs.BoolVar(&o.verbose, "v", false, "print the start-up steps with their times")
	_ = fs.Parse(args)
	o.kubelet = fs.Args()
	if len(o.kubelet) == 0 {
		return errors.New("the kubelet's command is missing: give it after --")
	}
	for _, dir := range []*string{&o.state, &o.kubernetes, &o.trainer, &o.argo, &o.kueue, &o.kserve} {
		if *dir == "" {
			continue
		}
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return err
		}
		*dir = abs
	}
	if *parent != 0 {
		go func() {
			for os.Getppid() == *parent {
				time.Sleep(250 * time.Millisecond)
			}
			stop()
		}()
	}
	return o.up(ctx)
}
