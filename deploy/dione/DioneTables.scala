import com.paypal.dione.spark.index.{IndexManager, IndexSpec}
import org.apache.spark.sql.{DataFrame, Row, SparkSession}
import org.apache.spark.sql.functions.col

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Paths}
import scala.collection.JavaConverters._
import scala.util.control.NonFatal

/** Tables that Dione's own job indexes, and a proof of index tables by Dione's own readers.
  *
  *   write FOLDER           Makes the tables and their indexes, and FOLDER/NAME.json with the rows of each.
  *   prove FOLDER [FILE]    Asks Dione's readers for every key of its own indexes, or of the tables that FILE declares:
  *                          a line is the table, a tab, its statement.
  */
object DioneTables {
  val Types = Map("ks" -> "string", "ki" -> "int", "kl" -> "bigint", "kd" -> "string", "n" -> "int", "v" -> "string")
  val Keys = Seq(Seq("ks"), Seq("ki"), Seq("kl"), Seq("ki", "ks"), Seq("kd"))

  /** `columns` is their order. */
  case class Source(name: String, storage: String, columns: Seq[String], keys: Seq[Seq[String]], moreFields: Seq[String])

  /** Dione's reader of ORC takes the type of the first field that it reads from the first column of the file, and so
    * on. So each key has a table of its own, in which the key columns and `v` are first. */
  val Sources: Seq[Source] = {
    val all = Seq("ks", "ki", "kl", "kd", "n", "v")
    val delimited = "ROW FORMAT DELIMITED FIELDS TERMINATED BY '|' STORED AS INPUTFORMAT " +
      "'org.apache.hadoop.mapred.SequenceFileInputFormat' OUTPUTFORMAT " +
      "'org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat'"
    val orc = for (keys <- Keys) yield {
      val first = keys :+ "v"
      Source(s"orc_${keys.mkString("_")}", "STORED AS ORC", first ++ all.filterNot(first.contains), Seq(keys), Nil)
    }
    Seq(
      Source("parquet", "STORED AS PARQUET", all, Keys, Seq("n")),
      Source("avro", "STORED AS AVRO", all, Keys, Seq("n")),
      Source("sequence", delimited, all, Keys, Seq("n")),
      Source("sequence_blocks", delimited, all, Keys, Seq("n"))) ++ orc
  }
  val Days = Seq("2026-01-01", "2026-01-02")
  val RowsOfDay = 300
  val Settings = Seq("num.parts" -> "3", "height" -> "3", "interval" -> "20")
  /** Keys with characters of one to four bytes, whose orders in UTF-8 and in Java differ; numbers of both signs; keys
    * that occur several times. */
  val Rows = Seq(
    "concat(element_at(array('k', 'é', '日本', '\uffee', '😀'), cast(id % 5 + 1 as int)), id) ks",
    "cast(id * 7919 % 100003 - 50000 as int) ki",
    "id * 1000000007L - 300000000000L kl",
    "concat(element_at(array('d', 'ß', '😀'), cast(id % 3 + 1 as int)), id % 41) kd",
    "cast(id as int) n",
    "repeat(md5(cast(id as string)), 10) v")

  def session(folder: String): SparkSession = {
    val spark = SparkSession.builder().master("local[2]").appName("dione").enableHiveSupport()
      .config("spark.sql.warehouse.dir", s"$folder/warehouse")
      .config("spark.hadoop.javax.jdo.option.ConnectionURL", s"jdbc:derby:;databaseName=$folder/metastore;create=true")
      .config("spark.sql.shuffle.partitions", "2")
      .config("spark.ui.enabled", "false")
      .config("spark.hadoop.parquet.block.size", "4096")
      .config("spark.hadoop.parquet.block.size.row.check.min", "10")
      .config("spark.hadoop.io.seqfile.compress.blocksize", "8000")
      .config("spark.hadoop.io.compression.codecs", "")
      .config("indexer.files.chunk.split", "false")
      .getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for ((name, value) <- Settings) spark.conf.set(s"index.manager.btree.$name", value)
    spark
  }

  def main(words: Array[String]): Unit = {
    implicit val spark: SparkSession = session(words(1))
    words(0) match {
      case "write" => write(words(1))
      case "prove" =>
        val tables = if (words.length < 3) ownIndexes else declared(words(2))
        tables.foreach(prove)
    }
    spark.stop()
  }

  // -- the tables -----------------------------------------------------------------------------------------------------

  def write(folder: String)(implicit spark: SparkSession): Unit = {
    spark.sql("CREATE DATABASE IF NOT EXISTS dione")
    for (source <- Sources; file = Paths.get(s"$folder/${source.name}.json"); if !Files.exists(file)) {
      val table = s"dione.${source.name}"
      val columns = source.columns.map(name => s"$name ${Types(name)}").mkString(", ")
      spark.sql(s"DROP TABLE IF EXISTS $table")
      spark.sql(s"CREATE TABLE $table ($columns) PARTITIONED BY (dt string) ${source.storage}")
      spark.sql(s"SET hive.exec.compress.output=${source.name.endsWith("blocks")}")
      spark.sql("SET mapreduce.output.fileoutputformat.compress.type=BLOCK")
      for ((day, number) <- Days.zipWithIndex) {
        spark.range(number * RowsOfDay, (number + 1) * RowsOfDay).selectExpr(Rows: _*).repartition(2)
          .select(source.columns.map(col): _*).createOrReplaceTempView("rows")
        spark.sql(s"INSERT INTO $table PARTITION (dt = '$day') SELECT * FROM rows")
      }
      val failed = source.keys.map(keys => keys -> index(source, keys)).filter(_._2.nonEmpty)
      for ((keys, why) <- failed) println(s"$table by ${keys.mkString(", ")}: $why")
      val made = source.keys.diff(failed.map(_._1)).map(texts).mkString("[", ", ", "]")
      val rows = spark.table(table).orderBy("n").toJSON.collect().mkString("[\n", ",\n", "]")
      val json =
        s"""{"root": ${text(s"file:$folder/warehouse")}, "indexes": $made, "include": ${texts(source.moreFields)},
           | "columns": ${text(columns)}, "rows": $rows}
           |""".stripMargin
      Files.write(file, json.getBytes(UTF_8))
    }
  }

  def text(value: String): String = "\"" + value.replace("\\", "\\\\").replace("\"", "\\\"") + "\""
  def texts(values: Seq[String]): String = values.map(text).mkString("[", ", ", "]")

  /** Dione's own job. Returns why it failed. */
  def index(source: Source, keys: Seq[String])(implicit spark: SparkSession): String = {
    val table = indexOf(source, keys)
    tried {
      spark.sql(s"DROP TABLE IF EXISTS $table")
      val spec = IndexSpec(s"dione.${source.name}", table, keys, source.moreFields)
      IndexManager.createNew(spec).appendMissingPartitions()
      val found = spark.table(table).count()
      if (found == Days.length * RowsOfDay) "" else s"$found entries"
    }
  }

  def tried(work: => String): String = try work catch {
    case NonFatal(error) =>
      val cause = Iterator.iterate[Throwable](error)(_.getCause).takeWhile(_ != null).toSeq.last
      s"${cause.getClass.getSimpleName}: ${String.valueOf(cause.getMessage).linesIterator.toSeq.headOption.getOrElse("")}"
        .take(160)
  }

  // -- the proof ------------------------------------------------------------------------------------------------------

  def ownIndexes(implicit spark: SparkSession): Seq[String] = {
    val there = spark.catalog.listTables("dione").collect().map(table => s"dione.${table.name}").toSet
    for (source <- Sources; keys <- source.keys; name = indexOf(source, keys); if there(name)) yield name
  }

  def indexOf(source: Source, keys: Seq[String]): String = s"dione.${source.name}_${keys.mkString("_")}"

  /** Declares tables. Returns those of indexes. */
  def declared(file: String)(implicit spark: SparkSession): Seq[String] = {
    spark.sql("CREATE DATABASE IF NOT EXISTS dione")
    val tables = for (line <- Files.readAllLines(Paths.get(file)).asScala) yield {
      val Array(table, statement) = line.split("\t", 2)
      spark.sql(s"DROP TABLE IF EXISTS $table")
      spark.sql(statement)
      spark.sql(s"MSCK REPAIR TABLE $table")
      table
    }
    tables.filter(table => spark.sql(s"SHOW TBLPROPERTIES $table").collect().exists(_.getString(0).startsWith("index.")))
  }

  /** Prints what each of Dione's readers found, of how many. */
  def prove(table: String)(implicit spark: SparkSession): Unit = {
    val manager = IndexManager.load(table)
    val keys = manager.keys
    val more = manager.moreFields
    val data = spark.table(manager.dataTableName)
    val rows = data.selectExpr((keys ++ Seq("n", "v", "dt")).map(name => s"`$name`"): _*).collect()
    val width = keys.length
    val groups = rows.groupBy(row => (keys.indices.map(row.get): Seq[Any], row.getString(width + 2)))
    val unique = data.select((keys :+ "dt").map(col): _*).distinct()
    val absent = rows.take(40).map(row => keys.indices.map(i => other(row.get(i))))
    def groupOf(row: Row) = groups.getOrElse((keys.map(row.getAs[Any]), row.getAs[String]("dt")), Array[Row]())
    def isRow(row: Row) = groupOf(row).exists(_.getAs[String]("v") == row.getAs[String]("v"))
    def loaded(index: DataFrame) = {
      val found = manager.loadByIndex(index, Some(Seq("v"))).select((keys ++ Seq("dt", "v")).map(col): _*).collect()
      s"${found.count(isRow)} of ${found.length}"
    }
    val proofs = Seq(
      "absent found" -> (() => absent.count(key => manager.fetch(key, Seq("dt" -> Days(0)), Some(Seq("v"))).nonEmpty)
        + s" of ${absent.length}"),
      "table rows missing" -> (() => {
        val names = (keys ++ more :+ "dt").map(col)
        val (mine, theirs) = (spark.table(table).select(names: _*), data.select(names: _*))
        s"${theirs.exceptAll(mine).count()} and ${mine.exceptAll(theirs).count()} too many of ${rows.length}"
      }),
      "join" -> (() => {
        val found = manager.joinWithIndex(unique)
        s"${found.count()} of ${groups.size}, loaded right ${loaded(found)}"
      }),
      "join with absent keys" -> (() => {
        val others = absent.toSeq.map(key => Row.fromSeq(key :+ Days(0)))
        val asked = unique.union(spark.createDataFrame(others.asJava, unique.schema))
        s"${manager.joinWithIndex(asked).count()} of ${groups.size}"
      }),
      "load all" -> (() => loaded(manager.getIndex())),
      "fetched" -> (() => groups.count { case ((key, day), some) =>
        val found = manager.fetchAll(key, Seq("dt" -> day), Some(Seq("v"))).map(_("v").toString).toSeq
        found.sorted == some.map(_.getAs[String]("v")).toSeq.sorted
      } + s" of ${groups.size} keys"))
    for ((name, proof) <- proofs) println(s"$table: $name ${tried(proof())}")
  }

  def other(value: Any): Any = value match {
    case text: String => text + "x"
    case number: Int => number + 1000000
    case number: Long => number + 1
  }
}
