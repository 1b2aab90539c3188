package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
)

// eventually calls f until it returns nil, the time is over or ctx ends.
func eventually(ctx context.Context, limit time.Duration, f func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := f()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready after %s: %w", limit, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, after: %w", ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// healthy asks the kube-apiserver as admin.
func healthy(ctx context.Context, api *kubernetes.Clientset) error {
	return api.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// nodeReady says whether the kubelet's Node is there and Ready.
func nodeReady(ctx context.Context, api *kubernetes.Clientset) error {
	raw, err := api.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes").DoRaw(ctx)
	if err != nil {
		return err
	}
	var nodes unstructured.UnstructuredList
	if err := json.Unmarshal(raw, &nodes); err != nil {
		return err
	}
	for _, node := range nodes.Items {
		if conditionTrue(&node, "Ready") {
			return nil
		}
	}
	return errors.New("no Node is Ready")
}

func conditionTrue(obj *unstructured.Unstructured, kind string) bool {
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == kind && c["status"] == "True" {
			return true
		}
	}
	return false
}

// answers says whether a readiness URL of a controller answers 200.
func answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}
