package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// container is what the kubelet tells, in the header X-Container, of where a command shall run.
type container struct {
	Prefix []string `json:"prefix"` // the beginning of a command that enters it
	Env    string   `json:"env"`    // the file with its environment
}

// ExecInContainer runs a command there; there are no terminals.
func (c container) ExecInContainer(ctx context.Context, _, _, _ string, argv []string, in io.Reader, out, errOut io.WriteCloser,
	_ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	env, err := os.ReadFile(c.Env)
	if err != nil {
		return err
	}
	argv = append(c.Prefix, argv...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = strings.Split(strings.TrimRight(string(env), "\x00"), "\x00")
	if out != nil {
		cmd.Stdout = out
	}
	if errOut != nil {
		cmd.Stderr = errOut
	}
	if in != nil {
		pipe, err := cmd.StdinPipe() // cmd.Stdin itself would wait for the client to close it
		if err != nil {
			return err
		}
		go func() { _, _ = io.Copy(pipe, in); pipe.Close() }()
	}
	err = cmd.Run()
	if exit := (&exec.ExitError{}); errors.As(err, &exit) {
		return utilexec.CodeExitError{Err: err, Code: exit.ExitCode()}
	}
	return err
}

// serveExec speaks the streaming protocols of "exec" for the kubelet, which hands its connections on to the
// socket NAME in this folder. The way through /proc keeps the path short enough for a socket's address.
func serveExec(folder, name string) error {
	dir, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer dir.Close()
	listener, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name))
	if err != nil {
		return err
	}
	go func() { _ = http.Serve(listener, http.HandlerFunc(serveOneExec)) }()
	return nil
}

func serveOneExec(w http.ResponseWriter, req *http.Request) {
	var c container
	opts, err := remotecommand.NewOptions(req)
	if err = errors.Join(err, json.Unmarshal([]byte(req.Header.Get("X-Container")), &c)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, req, c, "", "", "", req.URL.Query()["command"], opts,
		time.Hour, 30*time.Second, remotecommand.SupportedStreamingProtocols)
}
