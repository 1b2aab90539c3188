package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	partingTime = 10 * time.Second // for the kubelet to end the pods
	tailLines   = 15
)

// part is one running program.
type part struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// parts are the programs of one control plane. One that ends by itself ends all of them, by cancel.
type parts struct {
	logs   string
	all    []*part
	cancel context.CancelCauseFunc
}

// start runs a program with its output in LOGS/NAME.log. When this program is killed, the part gets the
// signal onDeath.
func (ps *parts) start(name string, onDeath syscall.Signal, env []string, argv ...string) error {
	path := filepath.Join(ps.logs, name+".log")
	logFile, err := os.Create(path)
	if err != nil {
		return err
	}
	defer logFile.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = logFile, logFile, ps.logs
	cmd.Env = append(os.Environ(), env...)
	// Own process group: a terminal's Ctrl-C reaches only this program, which stops the parts in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: onDeath, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	p := &part{name, cmd, make(chan struct{})}
	ps.all = append(ps.all, p)
	go func() {
		err := cmd.Wait()
		close(p.done)
		if err == nil {
			err = fmt.Errorf("exit status 0")
		}
		ps.cancel(fmt.Errorf("%s ended (%w); its log %s ends with:\n%s", name, err, path, tail(path)))
	}()
	return nil
}

// shutdown first lets the kubelet end the pods' processes, then ends the rest: all state is throw-away.
func (ps *parts) shutdown() {
	for _, p := range ps.all {
		if p.name == "kubelet" {
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-p.done:
			case <-time.After(partingTime):
			}
		}
	}
	for _, p := range ps.all {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
	for _, p := range ps.all {
		<-p.done
	}
}

func (ps *parts) pids() map[string]int {
	out := map[string]int{}
	for _, p := range ps.all {
		out[p.name] = p.cmd.Process.Pid
	}
	return out
}

// tail is the end of a log.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
