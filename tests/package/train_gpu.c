/* Ten steps and an inference of the package of tests/package/network.py for a GPU, on arrays from standard input.

   ./train_gpu PARAMETERS RESULT ORDINAL: reads ids and labels, writes losses, the old bias and the scores as they are in
   memory, and the parameters to RESULT; then what is refused. */
#include "net.h"

static int fails(int32_t number) {
    if (number != 0)
        fprintf(stderr, "%s\n", net_message(number));
    return number != 0;
}

static int trains(net *model, char **arguments, int64_t *ids, int64_t *labels) {
    float loss, bias[10], scores[8 * 10], table[20 * 16];
    if (fails(net_load(model, arguments[1])))
        return 3;
    for (int n = 0; n < 10; n++) {
        if (fails(net_step(model, ids, labels, &loss, bias)))
            return 4;
        fwrite(&loss, 4, 1, stdout);
    }
    if (fails(net_infer(model, ids, scores)) || fails(net_store(model, arguments[2])))
        return 5;
    fwrite(bias, 4, 10, stdout);
    fwrite(scores, 4, 8 * 10, stdout);
    if (fails(net_get(model, NET_TABLE, table)))
        return 6;
    fwrite(table, 4, 4, stdout);
    fails(net_infer(model, NULL, scores));
    fails(net_get(model, NET_TABLE, NULL));
    fails(net_set(model, NET_PARAMETERS, table));
    fails(net_load(model, "/nonexistent"));
    fails(net_load(model, arguments[0]));
    ids[3] = 1000;
    fails(net_step(model, ids, labels, &loss, bias));
    if (net_parameter(model, 0) == NULL || net_parameter(model, NET_PARAMETERS) != NULL)
        return 7;
    return 0;
}

int main(int count, char **arguments) {
    int64_t ids[8], labels[8];
    if (count < 4 || fread(ids, 8, 8, stdin) != 8 || fread(labels, 8, 8, stdin) != 8)
        return 2;
    net *model = net_open(atoi(arguments[3]));
    int result = model == NULL ? 2 : trains(model, arguments, ids, labels);
    net_close(model);
    return result;
}
